"""Versions of queries that a checkpoint knows by the keys of older mergers.

Those keys were xxh3-64 of a version's text. Another text with a given key is found in seconds, so
keys are now a cryptographic hash (`query_specs`). An old checkpoint keeps its keys until its
versions have ended: a key stands for the first text that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.query_specs import Spec
from sirocco.protocol.merger.state_pieces import Piece, in_pieces, weight_of_rows

# The columns of a checkpoint that hold keys.
_COLUMNS = ("knn.keys", "versions.keys", "steps.keys", "ends.keys", "awaited.keys")

# A text that has not been seen yet.
_ANY = 0


@dataclass(slots=True)
class FormerKeys:
    """Former keys, and the keys of the texts that they stand for."""

    _keys: dict[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def known(self, spec: Spec) -> Spec:
        """Returns the spec with the key under which its version is kept here."""
        if spec.ended is not None:
            return replace(spec, ended=self.known(spec.ended))
        key = self._keys.get(spec.former_key)
        if key is None or key not in (_ANY, spec.key):
            return spec
        self._keys[spec.former_key] = spec.key
        return replace(spec, key=spec.former_key)

    def forget(self, key: int) -> None:
        """Forgets a key under which nothing is kept any more."""
        self._keys.pop(key, None)

    # --- as a checkpoint

    def pieces(self, rows_max: int) -> Iterator[Piece]:
        """Yields former keys and what they stand for, as columns."""
        for keys in in_pieces(self._keys.items(), rows_max):
            yield (
                weight_of_rows(len(keys)),
                {
                    "former.keys": np.array([key for key, _ in keys], np.uint64),
                    "former.new_keys": np.array([new_key for _, new_key in keys], np.uint64),
                },
            )

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint; in one without them all keys are former ones."""
        if "former.keys" in state:
            keys, new_keys = state["former.keys"].tolist(), state["former.new_keys"].tolist()
            self._keys = dict(zip(keys, new_keys, strict=True))
            return
        for name in _COLUMNS:
            if name in state:
                self._keys |= dict.fromkeys(state[name].tolist(), _ANY)
