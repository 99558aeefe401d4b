"""`sirocco map propose --wait` waits for its own change."""

from __future__ import annotations

import pytest
from sirocco_client import MapChange

from sirocco.cli.map import _is_running


@pytest.mark.parametrize(
    ("in_force", "phase", "following", "goes_on"),
    [
        (1, "copying", 2, True),
        (2, "switching", 2, True),
        (2, "retiring", 2, True),
        (2, "none", 0, False),
        # The next change began as soon as this one was over.
        (2, "copying", 3, False),
        (3, "retiring", 3, False),
    ],
)
def test_another_change_is_not_waited_for(
    in_force: int, phase: str, following: int, goes_on: bool
) -> None:
    assert _is_running(MapChange(in_force, phase, following, 0, 0, b""), 2) is goes_on
