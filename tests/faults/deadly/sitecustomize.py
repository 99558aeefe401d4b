"""Makes processes with this folder on their path end when a slot matches a certain word.

Like a defect of a kernel: at once, without a message, in the middle of a batch.
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
    """Finds the one module, and changes it once it is loaded."""

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
    """Makes the class end its process when it matches the word."""
    match = slot._match

    def deadly(self: Any, parts: Any, end: int) -> Any:
        if any(WORD in routed.objects.text.tobytes() for _, routed, _ in parts):
            os.abort()
        return match(self, parts, end)

    slot._match = deadly


sys.meta_path.insert(0, Finder())
