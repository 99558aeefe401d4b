"""The tool runs where standard input, output or error were closed before its start."""

from __future__ import annotations

import sys

import pytest

from sirocco.cli.__main__ import main


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_closed_file_is_opened(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs were an error of Python's, after the work was done; another file became the input."""
    monkeypatch.setattr(sys, name, None)
    try:
        assert main(["completion", "bash"]) == 0
        assert main(["queries", "get", "q", "--router", "nowhere"]) == 2
    finally:
        opened = getattr(sys, name)
        assert opened is not None
        opened.close()
