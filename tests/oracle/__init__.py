"""Computes correct results by brute force from the contract, over objects and queries as JSON.

Independent of the engine: every rule is written a second time, in plain formulas over whole
columns. One module for each kind; `compare.py` combines them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from sirocco.model.expression import AllOf, AnyOf, Node, Not, Term
from tests.oracle.compare import agrees, answers, matches
from tests.oracle.filters import satisfies
from tests.oracle.geometry import EARTH_RADIUS_M, Region, distance_m
from tests.oracle.table import Members, Objects, key_of
from tests.oracle.times import arrivals_ms, duration_ms

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
]


def read_members(path: Path) -> list[dict[str, Any]]:
    """Returns the JSON objects of a file, plain or gzipped."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def holds(node: Node, terms: frozenset[str]) -> bool:
    """Returns whether the terms of a text satisfy a syntax tree of the engine."""
    match node:
        case Term(term):
            return term in terms
        case Not(operand):
            return not holds(operand, terms)
        case AllOf(operands):
            return all(holds(operand, terms) for operand in operands)
        case AnyOf(operands):
            return any(holds(operand, terms) for operand in operands)
