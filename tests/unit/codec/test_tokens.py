"""Position tokens: which are read, which are refused, and that reading shortens them."""

from __future__ import annotations

import pytest

from sirocco.codec.tokens import OFFSET_MAX, read_position_token, write_position_token
from sirocco.model.errors import InvalidArgument


@pytest.mark.parametrize(
    ("token", "positions"),
    [
        ("", {}),
        ("1.7", {1: 7}),
        ("1.7,0.3", {1: 7, 0: 3}),
        # The furthest position counts, in any order.
        ("1.7,1.3,1.7", {1: 7}),
        (f"0.{OFFSET_MAX}", {0: OFFSET_MAX}),
    ],
)
def test_a_token_holds_the_position_of_each_partition(
    token: str, positions: dict[int, int]
) -> None:
    assert read_position_token(token, 2) == positions
    assert read_position_token(write_position_token(positions), 2) == positions


@pytest.mark.parametrize(
    "token", ["x", "1", "1.2.3", ",", "1.7,", "2.0", "-1.0", "0.-1", f"0.{OFFSET_MAX + 1}"]
)
def test_what_no_publish_was_answered_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_position_token(token, 2)
    assert caught.value.field == "position_token"


def test_a_token_of_megabytes_is_not_read() -> None:
    """Its two million parts blocked a router's loop for three seconds."""
    with pytest.raises(InvalidArgument) as caught:
        read_position_token("0.1," * (1 << 21) + "0.1", 2)
    assert caught.value.field == "position_token"
    # A token of very many Kafka partitions is read.
    positions = dict.fromkeys(range(3_000), OFFSET_MAX)
    assert read_position_token(write_position_token(positions), 3_000) == positions
