"""Computes correct results by brute force from the contract, over objects and queries as JSON.

Independent of the engine: every rule is written a second time, in plain formulas over whole
columns. One module for each kind; `compare.py` combines them.
"""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracle.compare import agrees, answers, matches
from tests.oracle.filters import satisfies
from tests.oracle.geometry import EARTH_RADIUS_M, Region, distance_m
from tests.oracle.table import Members, Objects, key_of
from tests.oracle.times import arrivals_ms, duration_ms
from tests.oracle.words import evaluate, parse, tokens_of
from tests.oracle.words import holds as leaf_holds

__all__ = [
    "EARTH_RADIUS_M",
    "Members",
    "Objects",
    "Region",
    "agrees",
    "answers",
    "arrivals_ms",
    "distance_m",
    "duration_ms",
    "holds",
    "key_of",
    "matches",
    "read_members",
    "satisfies",
    "text_holds",
]


def read_members(path: Path) -> list[dict[str, Any]]:
    """Returns the JSON objects of a file, plain or gzipped."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    return [json.loads(line) for line in text.split("\n") if line.strip()]


# Each expression is evaluated for every object.
_parsed = lru_cache(256)(parse)


def text_holds(query: Members, text: str) -> bool:
    """Returns whether a text satisfies the `text` of a query, if it has one."""
    if "text" not in query:
        return True
    fold = query.get("fold", False)
    tokens = tokens_of(text, fold=fold)
    tree = _parsed(query["text"], fold=fold)
    return bool(evaluate(tree, lambda leaf: np.bool_(leaf_holds(leaf, tokens))))


def holds(expression: str, tokens: list[str]) -> bool:
    """Returns whether a text with these tokens, in order, satisfies an expression."""
    return bool(evaluate(_parsed(expression), lambda leaf: np.bool_(leaf_holds(leaf, tokens))))
