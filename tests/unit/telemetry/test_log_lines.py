"""Lines of the log: whatever a record holds, there is one."""

from __future__ import annotations

import logging

import orjson
import pytest

from sirocco.telemetry.logging import JsonFormatter, event

NESTED: list[object] = []
for _ in range(100_000):
    NESTED = [NESTED]


def line(message: str, **fields: object) -> dict[str, object]:
    """Returns what stands in the log."""
    extra = event("refused", **fields)
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", **extra})
    found: dict[str, object] = orjson.loads(JsonFormatter().format(record))
    return found


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("half \ud800", "half \\ud800"),
        (1 << 70, "0x400000000000000000"),
        (-1 << 70, "-0x400000000000000000"),
        (10**5_000, hex(10**5_000)),
        (["\udfff"], "['\\udfff']"),
        ({7: "é"}, "{7: '\\xe9'}"),
        ([10**5_000], "list (ValueError)"),
    ],
    ids=range(7),
)
def test_what_has_no_form_in_json_is_escaped(value: object, shown: str) -> None:
    found = line("refused ü", id=value, slot=3, share=0.5, is_new=True, by=None)
    assert found["id"] == shown
    assert found["message"] == "refused ü"
    assert (found["slot"], found["share"], found["is_new"], found["by"]) == (3, 0.5, True, None)


def test_a_message_with_half_a_pair_is_escaped() -> None:
    assert line("\ud800")["message"] == "\\ud800"


def test_what_is_nested_too_deeply_is_named() -> None:
    assert line("deep", value=NESTED)["value"] == "list (RecursionError)"
