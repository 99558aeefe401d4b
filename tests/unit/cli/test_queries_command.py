"""What `sirocco queries` asks of a cluster: the past, and many changes at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sirocco_client import Client, RangeQuery

from sirocco.cli.__main__ import main
from tests.support.fake_cluster import FakeCluster

COUNT = 2_500


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    yield found
    found.stop()


@pytest.mark.parametrize("way", ["--file", "--all"])
def test_many_are_removed_in_few_requests(
    way: str, cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One by one, 20,000 took minutes."""
    names = [f"q{number}" for number in range(COUNT)]
    with Client(cluster.router) as client:
        queries = (RangeQuery(id=name, subscriber="ops", text="fire") for name in names)
        assert len(list(client.register_many(queries))) == COUNT
    ids = tmp_path / "ids"
    ids.write_text("\n".join(names))
    options = {"--file": ("--file", str(ids)), "--all": ("--all", "--subscriber", "ops")}
    cluster.bulk_requests = 0
    assert main(["queries", "remove", "--router", cluster.router, *options[way]]) == 0
    assert f"{COUNT:,} queries removed" in capsys.readouterr().out
    assert not cluster.queries
    assert 1 <= cluster.bulk_requests <= COUNT // 500


@pytest.mark.parametrize("step", ["register", "update"])
def test_changes_look_back_as_far_as_requested(
    step: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    path.write_text(json.dumps({"id": "q", "kind": "range", "mode": "continuous", "text": "fire"}))
    options = ("--subscriber", "ops", "--router", cluster.router)
    if step == "update":
        assert main(["queries", "register", str(path), *options]) == 0
    assert main(["queries", step, str(path), *options, "--past", "2h"]) == 0
    assert cluster.pasts_ms == {"q": 7_200_000}


def test_an_id_that_cannot_be_removed_is_named_once(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queries", "remove", "absent", "--router", cluster.router]) == 3
    assert capsys.readouterr().err.startswith("argument:1: absent: no query")
