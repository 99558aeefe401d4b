"""`sirocco local up` after `down`: the numbers of processes and settings are those of before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sirocco.cli.__main__ import main, whole_parser
from sirocco.cli.local.command import _settings
from sirocco.local.cluster import STATE

COUNTS = {"coordinator": 1, "merger": 2, "evaluator": 3, "router": 2, "gateway": 0}
OPTIONS = {"SIROCCO_SLOTS": "12", "SIROCCO_SCHEME": "swarm", "SIROCCO_STORE": "off"}


def test_numbers_and_settings_stay_over_down_and_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # init: the state of a cluster whose processes have ended.
    directory = tmp_path / "run"
    directory.mkdir()
    servers = {"kafka": "127.0.0.1:9", "redis": "redis://127.0.0.1:9/0", "archive": "a"}
    settings = {"cluster": "local", **servers, "counts": COUNTS, "options": OPTIONS}
    (directory / STATE).write_text(json.dumps({"settings": settings, "addresses": {}}))
    local = ["local", "--directory", str(directory)]

    # test
    assert main([*local, "down"]) == 0
    same = _settings(whole_parser().parse_args([*local, "up"]), "k", "r")
    wanted = [*local, "up", "--evaluators", "1", "--store", "on"]
    other = _settings(whole_parser().parse_args(wanted), "k", "r")

    # check: what is given counts, and everything else stays.
    assert (same.counts, same.options) == (COUNTS, OPTIONS)
    assert other.counts == COUNTS | {"evaluator": 1}
    assert other.options == OPTIONS | {"SIROCCO_STORE": "on"}
