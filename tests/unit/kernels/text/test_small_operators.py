"""Small operators in the columns of plain expressions, as the usual reader finds them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sirocco.kernels.text.small_operators import mark_small_operators
from sirocco.model.hints.warnings import warnings_of_text

WORDS = st.sampled_from(["and", "or", "not", "AND", "Or", "an", "andy", "orb", "no", "x", "fire"])


@given(st.lists(st.lists(WORDS, max_size=4).map(" ".join), max_size=8))
def test_rows_with_warnings_are_marked(texts: list[str]) -> None:
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    marks = np.empty(len(texts), np.bool_)
    mark_small_operators(data, offsets, marks)
    assert marks.tolist() == [bool(warnings_of_text(text)) for text in texts]
