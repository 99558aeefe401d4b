"""The configuration of a connector: what is read, and what is refused with the member's path."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.config import CONFIG_BYTES_MAX, load_config, read_config
from sirocco.services.connector.kafka_connection import read_kafka
from sirocco.services.connector.sections import Section


def refused(text: str, environment: dict[str, str] | None = None) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        read_config(text, {} if environment is None else environment)
    return caught.value


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("router: h:1", "configuration"),
        ("sinks: {}", "router"),
        ("router: no", "router"),
        ("[]", "configuration"),
        ("router: h:1\nsource: {}", "source"),
        ("router: h:1\ntls: {key: k}", "tls.key"),
        ("router: h:1\ntls: {ca: /nowhere}", "tls.ca"),
        ('router: h:1\ntls: {ca: "a\\0b"}', "tls.ca"),
        ('router: h:1\ntoken_file: "a\\0b"', "token_file"),
        ("router: h:1\ntoken: a\ntoken_file: b", "token_file"),
        ("router: h:1\ntoken: ${MISSING}", "token"),
        ("router: h:1\nsources: {a: {kind: tape}}", "sources.a.kind"),
        ("router: h:1\nsources: {a: {}}", "sources.a.kind"),
        ("router: h:1\nsources: {a: 3}", "sources.a"),
        ("router: h:1\nsources: {a b: {}}", "sources"),
        ("router: h:1\n1: 2", "names"),
        ("router: h:1\nrouter: h:2", "configuration"),
        ("a: &a [x]\nb: *a", "configuration"),
        ("a: 2026-13-77", "configuration"),
        ("a: [", "configuration"),
        ("a: !!python/object/apply:os.system [ls]", "configuration"),
        ("[" * 5_000, "configuration"),
        ("a: " + "[" * 50 + "]" * 50, "a" + "[0]" * 20),
    ],
)
def test_what_cannot_be_used_is_named_by_its_path(text: str, field: str) -> None:
    assert refused(text).field == field


def test_a_word_that_yaml_takes_for_a_boolean_is_to_be_quoted() -> None:
    # The path of a record's member, a single text, and one of several.
    for given in ("topics: t\n    map: {id: no}", "topics: t\n    group: off", "topics: [a, yes]"):
        source = f"kind: kafka\n    bootstrap: h:1\n    dead_letters: drop\n    {given}"
        error = refused(f"router: h:1\nsources:\n  a:\n    {source}")
        assert error.message == (
            "must be a text, not a boolean: quote it if it is no, off, yes or on"
        ), given


def test_secrets_come_from_the_environment_and_are_not_shown() -> None:
    text = "router: h:1\ntoken: a${SECRET}b$${c}\nsources: {x: {kind: '${KIND}'}}"
    error = refused(text, {"SECRET": "s3", "KIND": "tape"})
    assert error.field == "sources.x.kind"
    assert "tape" in str(error)


def test_a_file_is_bounded(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_text("#" * (CONFIG_BYTES_MAX + 1))
    with pytest.raises(InvalidArgument, match=f"more than {CONFIG_BYTES_MAX} bytes"):
        load_config(large, {})
    with pytest.raises(InvalidArgument, match="No such file"):
        load_config(tmp_path / "none.yaml", {})
    large.write_bytes(b"\xff")
    with pytest.raises(InvalidArgument, match="no UTF-8"):
        load_config(large, {})


def test_a_section_reads_types_and_ranges_and_refuses_the_rest() -> None:
    members = {
        **{"n": 3, "t": "x", "d": "5s", "b": True, "list": ["a", "b"], "one": "a", "null": None},
        **{"in": {"c": "y"}},
    }
    section = Section(members, "p")
    assert section.integer("n", None, 1, 3) == 3
    assert section.text("t") == "x"
    assert section.duration_s("d", None, 0, 10) == 5
    assert section.switch("b", False)
    assert section.texts("list") == ("a", "b")
    assert section.texts("one") == ("a",)
    assert section.text("null", "default") == "default"
    assert section.number("none", 1.5, 0, 2) == 1.5
    assert section.section("in").choice("c", ("x", "y")) == "y"
    section.end()
    for read, field in (
        (lambda: section.integer("n", None, 4, 5), "p.n"),
        (lambda: section.integer("t", None, 4, 5), "p.t"),
        (lambda: section.duration_s("d", None, 6, 7), "p.d"),
        (lambda: section.switch("n", False), "p.n"),
        (lambda: section.texts("n"), "p.n"),
        (lambda: section.text("none"), "p.none"),
        (lambda: section.section("in").section("c"), "p.in.c"),
        (lambda: section.section("in").end(), "p.in.c"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            read()
        assert caught.value.field == field


@pytest.mark.parametrize("member", ["ca", "certificate", "key"])
def test_a_file_of_kafkas_security_is_looked_at_before_the_start(member: str) -> None:
    security = dict.fromkeys(("ca", "certificate", "key"), __file__) | {member: "/nowhere"}
    section = Section({"bootstrap": "h:1", "security": security}, "sources.x")
    with pytest.raises(InvalidArgument, match="/nowhere: No such file") as caught:
        read_kafka(section)
    assert caught.value.field == f"sources.x.security.{member}"
