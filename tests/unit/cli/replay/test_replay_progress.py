"""The bar of a replay counts what was done, and nothing ahead of it."""

from __future__ import annotations

import json
from pathlib import Path

from sirocco_client import Client

from sirocco.cli.replay.results import ResultsFile
from sirocco.cli.replay.run import Replay, ReplayFiles
from sirocco.cli.terminal.progress import Bar
from tests.support.fake_cluster import FakeCluster


class CountedBar(Bar):
    def __init__(self) -> None:
        super().__init__()
        self.done = 0

    def advance(self, count: int, note: str = "") -> None:
        self.done += count


def test_queries_count_once_they_are_registered(tmp_path: Path) -> None:
    """The first of two queries moved the bar to a thousand."""
    query = {"kind": "range", "mode": "continuous", "text": "fire"}
    bar = CountedBar()
    cluster = FakeCluster()
    try:
        for count, shown in ((2, 0), (1_500, 1_000)):
            queries = tmp_path / f"{count}.jsonl"
            queries.write_text(
                "".join(f"{json.dumps(query | {'id': f'q{i}'})}\n" for i in range(count))
            )
            bar.done = 0
            with Client(cluster.router) as client, ResultsFile(tmp_path / "out") as out:
                Replay(client, ReplayFiles(objects=tmp_path, queries=queries), out, bar)._register(
                    None
                )
            assert bar.done == shown
    finally:
        cluster.stop()
