"""Byte strings of any length as two columns of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.effects import State


def packed(name: str, texts: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """Returns u1[b], the strings one after another, and i8[n + 1], where each begins."""
    data = b"".join(texts)
    offsets = np.zeros(len(texts) + 1, np.int64)
    if data:
        np.cumsum([len(text) for text in texts], out=offsets[1:])
    return {name: np.frombuffer(data, np.uint8), f"{name}_offsets": offsets}


def unpacked(name: str, state: State) -> list[bytes]:
    """Returns the strings from the columns of `packed`."""
    data = state[name].tobytes()
    return [data[begin:end] for begin, end in pairwise(state[f"{name}_offsets"].tolist())]
