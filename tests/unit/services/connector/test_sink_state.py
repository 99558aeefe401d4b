"""The stored state of a sink: read as it was written, or refused with what is wrong."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from sirocco.services.connector.sinks.errors import SinkStopped, TargetUnavailable
from sirocco.services.connector.sinks.files import FileSettings, Part
from sirocco.services.connector.sinks.rows import Place
from sirocco.services.connector.sinks.state import Saved
from sirocco.services.connector.sinks.throttle import Throttle, ThrottleLimit, Window

SAVED = Saved(
    Place("abc", 3),
    ("x-1",),
    {"q": Window(1_000, 2, 3, "a", "b", -5, 6)},
    {"number": 2, "bytes": 0, "begin_s": 1.5},
)
STRANGE: list[Any] = [None, -1, 1 << 62, 1e308, "", "x", [], {}, [1], {"a": 1}, True]


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in members if isinstance(value, dict | list) else ():
        yield from paths(one, (*at, name)) if isinstance(one, dict | list) else [(*at, name)]


def test_a_state_is_read_as_it_was_written() -> None:
    assert Saved.from_bytes(SAVED.to_bytes(), "here") == SAVED


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_values_of_other_types_are_refused_or_harmless(value: Any, tmp_path: Path) -> None:
    written = orjson.loads(SAVED.to_bytes())
    for path in paths(written):
        changed = copy.deepcopy(written)
        inside = changed
        for name in path[:-1]:
            inside = inside[name]
        if path:
            inside[path[-1]] = value
        try:
            found = Saved.from_bytes(orjson.dumps(changed if path else value), "here")
            list(Throttle(ThrottleLimit(count=1, period_ms=1), dict(found.windows)).ended(1 << 50))
            Part(FileSettings(folder=tmp_path), "s").recover(found.target)
        except (SinkStopped, TargetUnavailable):
            continue
        assert found.place.skip >= 0


def test_a_state_that_is_cut_is_refused() -> None:
    whole = SAVED.to_bytes()
    for length in range(len(whole)):
        with pytest.raises(SinkStopped, match="here"):
            Saved.from_bytes(whole[:length], "here")
