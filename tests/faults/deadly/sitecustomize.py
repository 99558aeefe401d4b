"""Processes that have this folder on their path end where a slot matches a certain word.

As a defect of a kernel would: at once, without a word, in the middle of a batch.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "sirocco.protocol.evaluator.slot.slot"
WORD = b"deadlyword"


class Finder(importlib.abc.MetaPathFinder):
    """Finds the one module, and has it altered when it is there."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder.find_spec`."""
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            alter(module.Slot)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def alter(slot: Any) -> None:
    """Has the class end its process where it matches the word."""
    match = slot._match

    def deadly(self: Any, parts: Any, end: int) -> Any:
        if any(WORD in routed.objects.text.tobytes() for _, routed, _ in parts):
            os.abort()
        return match(self, parts, end)

    slot._match = deadly


sys.meta_path.insert(0, Finder())
