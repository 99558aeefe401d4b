"""Records what a cluster of revision 6b00d7a leaves of queries that its analysis read otherwise.

`test_former_words.py` continues from there with the present code. As `record.py`:

    git worktree add /tmp/former 6b00d7a
    cd /tmp && PYTHONPATH=/tmp/former:/tmp/former/sdk PYTHON THIS_FILE DIRECTORY

`words-drained` is the content of log and archive after an orderly end; of `words-killed` there is
the log alone, as before the first checkpoint.
"""

from __future__ import annotations

import base64
import json
import lzma
import sys
from pathlib import Path
from typing import Any

from sirocco_client import Client, query_from_json

from services.embedded import EmbeddedCluster  # type: ignore[import-not-found]
from sirocco.runtime.settings import ClusterSettings

SUBSCRIBER = "ops"
SETTINGS: dict[str, Any] = {
    **{"cluster": "former", "slots": 4, "leaves": 8},
    **{"intake_partitions": 1, "registry_partitions": 2},
}
TEXTS = {
    "fire": "fire",
    "fire in Japanese": "火事",
    "either": "siren OR 火事",
    "not": "火事 AND NOT 訓練",
    "network": "wi-fi",
    "street": "café straße",
}
NEAR = {"kind": "knn", "point": {"lon": 1, "lat": 1}, "k": 3, "text": "火事"}


def queries() -> list[dict[str, Any]]:
    """Returns the standing queries."""
    region = {"rect": {"west": 0, "south": 0, "east": 2, "north": 2}}
    ranges = [
        {"id": name, "kind": "range", "region": region, "text": text}
        for name, text in TEXTS.items()
    ]
    return [{"mode": "continuous"} | one for one in [*ranges, {"id": "near", **NEAR}]]


def main(directory: Path) -> None:
    """Writes both files."""
    with EmbeddedCluster(ClusterSettings(**SETTINGS), evaluators=1, routers=1) as cluster:
        with Client(cluster.router_address) as client:
            for query in queries():
                client.register(query_from_json(query, SUBSCRIBER))
        write(directory / "words-killed.json.xz", cluster)
    write(directory / "words-drained.json.xz", cluster)


def write(path: Path, cluster: Any) -> None:
    """Writes the bytes of log and archive."""
    log, archive = cluster.log, cluster._parts.archive
    with log.lock:
        topics = {
            name: [
                {"low": p.low, "records": [_record(r) for r in p.records[: p.stable - p.low]]}
                for p in partitions
            ]
            for name, partitions in log._topics.items()
        }
    blobs = {name: _text(archive.read(name)) for name in archive.list("")}
    text = json.dumps({"topics": topics, "blobs": blobs})
    path.write_bytes(lzma.compress(text.encode(), preset=9))
    print(path, path.stat().st_size, len(blobs))


def _record(record: Any) -> Any:
    if record is None:
        return None
    headers = [[name, _text(value)] for name, value in record.headers]
    return [record.timestamp_ms, _text(record.key), _text(record.value), headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
