"""The audit log: what its lines say, and how many there may be."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from sirocco.model.access import Grant
from sirocco.model.errors import NotFound, ResourceExhausted
from sirocco.telemetry.audit import KINDS_MAX, LEVELS, NAMES_MAX, TEXT_LENGTH_MAX, Audit, shown, who
from sirocco.telemetry.logging import JsonFormatter

ACME = Grant("k3", "acme", frozenset({"query"}))
PEER = "ipv4:10.0.0.1:5000"


class Log:
    """An audit and the lines that it has written."""

    def __init__(self, level: str, caplog: pytest.LogCaptureFixture) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.audit = Audit(level, lambda _, job: self.jobs.append(job))
        self._records = caplog.records

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What was written since the last time, as it stands in the log."""
        found = [json.loads(JsonFormatter().format(record)) for record in self._records]
        self._records.clear()
        return found

    def refuse(self, tenant: str = "acme", peer: str = PEER, action: str = "Publish") -> None:
        caller = who(Grant("k3", tenant, frozenset()), peer)
        self.audit.refused(action, "resource_exhausted", "too fast", caller)


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_says_what_is_written(level: str, caplog: pytest.LogCaptureFixture) -> None:
    log = Log(level, caplog)
    log.audit.changed("register_query", ["q"], {}, who(ACME, PEER))
    log.refuse()
    found = [line["event"] for line in log.lines]
    expected = {"off": [], "changes": ["audit_change"], "all": ["audit_change", "audit_refusal"]}
    assert found == expected[level]


def test_a_change_says_who_what_and_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    # Less chatter of the process does not end the audit.
    logging.getLogger().setLevel(logging.ERROR)
    log = Log("changes", caplog)
    errors = {1: NotFound("no such query"), 2: NotFound("no such query")}
    log.audit.changed("unregister_query", ["a", "b", "c", "d"], errors, who(ACME, PEER))
    ok, missing = log.lines
    assert ok.pop("time")
    assert ok == {
        "level": "info",
        "event": "audit_change",
        "action": "unregister_query",
        "ids": ["a", "d"],
        "outcome": "ok",
        "tenant": "acme",
        "token": "k3",
        "peer": PEER,
    }
    assert missing["ids"] == ["b", "c"]
    assert (missing["outcome"], missing["reason"]) == ("not_found", "no such query")


def test_the_subject_of_a_jwt_is_no_token_of_the_file() -> None:
    jwt = Grant("k3", "acme", frozenset(), 7, is_jwt=True)
    assert who(jwt, PEER) == {"tenant": "acme", "sub": "k3", "peer": PEER}


def test_many_names_are_spread_over_lines(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("changes", caplog)
    names = [f"q{number}" for number in range(2 * NAMES_MAX + 1)]
    errors = {row: ResourceExhausted("full") for row in range(1, len(names), 2)}
    log.audit.changed("register_query", names, errors, who(ACME, PEER))
    found = log.lines
    assert max(len(line["ids"]) for line in found) == NAMES_MAX
    assert sorted(name for line in found for name in line["ids"]) == sorted(names)
    for line in found:
        rows = [int(name[1:]) for name in line["ids"]]
        assert {row in errors for row in rows} == {line["outcome"] != "ok"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Zürich 東京", "Zürich 東京"),
        ('a\n{"event": "audit_change"}', 'a\\n{"event": "audit_change"}'),
        ("\x1b[31m\u202etxt\u2028", "\\x1b[31m\\u202etxt\\u2028"),
        ("x" * 10_000, "x" * (TEXT_LENGTH_MAX - 1) + "…"),
    ],
)
def test_texts_of_strangers_are_escaped_and_short(text: str, found: str) -> None:
    assert shown(text) == found


def test_refusals_of_a_kind_are_counted_after_the_first(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("all", caplog)
    for number in range(1_000):
        log.refuse(peer=f"ipv4:10.0.0.1:{number}")
    log.refuse(tenant="other")
    log.refuse(peer="ipv4:10.0.0.2:5")
    assert [(line["tenant"], line["reason"]) for line in log.lines] == [
        ("acme", "too fast"),
        ("other", "too fast"),
        ("acme", "too fast"),
    ]
    [summarise] = log.jobs
    summarise()
    [line] = log.lines
    assert (line["event"], line["count"], line["host"]) == ("audit_refusals", 999, "ipv4:10.0.0.1")
    assert (line["tenant"], line["token"], line["action"]) == ("acme", "k3", "Publish")
    # A window without refusals ends nothing and begins nothing.
    assert len(log.jobs) == 1
    log.refuse()
    assert len(log.lines) == 1
    assert len(log.jobs) == 2


def test_made_up_tenants_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("all", caplog)
    for number in range(10 * KINDS_MAX):
        log.refuse(tenant=f"t{number}")
    assert len(log.lines) == KINDS_MAX + 1
    log.jobs.pop()()
    [line] = log.lines
    assert (line["action"], line["count"]) == ("other", 9 * KINDS_MAX - 1)
