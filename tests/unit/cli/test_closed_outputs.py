"""The tool runs where standard output or error were closed before its start."""

from __future__ import annotations

import sys

import pytest

from sirocco.cli.__main__ import main


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_closed_output_is_opened(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error of Python's, after the work was done."""
    monkeypatch.setattr(sys, name, None)
    try:
        assert main(["completion", "bash"]) == 0
        assert main(["queries", "get", "q", "--router", "nowhere"]) == 2
    finally:
        if (opened := getattr(sys, name)) is not None:
            opened.close()
