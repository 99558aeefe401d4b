"""The output of `sirocco search` for people: a table of some rows, and their number."""

from __future__ import annotations

import json

import pytest
from sirocco_api.v1.search_service_pb2 import SearchResponse
from sirocco_client import RangeQuery, SearchAnswer, TermsQuery
from sirocco_client.objects.answer import SearchPart
from sirocco_client.objects.encode import ObjectEncoder

from sirocco.cli.__main__ import main
from sirocco.cli.search import command
from sirocco.cli.search.view import ROWS, show


def _answer(count: int, text: str = "fire", *, arrives: bool = False) -> SearchAnswer:
    response = SearchResponse()
    encoder = ObjectEncoder()
    for number in range(count):
        encoder.add({"id": number, "lon": 1.5, "lat": 2.5, "text": text, "ts": number})
    encoder.take(response.objects)
    eights = bytes(8 * count)
    response.events.sessions = response.events.numbers = response.events.arrivals_ms = eights
    if arrives:
        times = b"".join(number.to_bytes(8, "little") for number in range(count))
        response.events.arrivals_ms = times
    return SearchAnswer(
        RangeQuery(id="q", text="fire", mode="snapshot"), 0, (SearchPart(response),)
    )


def test_a_table_has_the_requested_rows_and_the_total(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(_answer(3), None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["id", "lon", "lat"]
    assert lines[1].split() == ["0", "1.50000", "2.50000", "1970-01-01T00:00:00", "fire"]
    assert lines[-1] == "3 objects"
    show(_answer(ROWS + 5), None)
    assert capsys.readouterr().out.splitlines()[ROWS + 1 :] == ["20 of 25 objects: --limit N"]
    show(_answer(25), 2)
    assert len(capsys.readouterr().out.splitlines()) == 4
    show(_answer(0), None)
    assert capsys.readouterr().out == "0 objects\n"


def test_long_and_hostile_texts_keep_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(_answer(2, "\x1b[2J\n" + "very long " * 1_000), None)
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 4
    assert "\x1b" not in out
    assert "\\x1b[2J\\nvery" in out


def test_terms_have_their_counts(capsys: pytest.CaptureFixture[str]) -> None:
    query = TermsQuery(id="q", k=3, mode="snapshot")
    show(SearchAnswer(query, 0, terms=(("fire", 1_200), ("[b]", 7)), missing_slots=(3,)), None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["fire", "1,200"]
    assert lines[2].split() == ["[b]", "7"]
    assert lines[3:] == ["2 terms", "partial: slots 3 gave no answer"]


def test_a_table_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    args = command.argparse.Namespace(format=None, limit=None, objects=False)  # type: ignore[attr-defined]
    monkeypatch.setattr("sirocco.cli.search.view.show", lambda *arguments: shown.append(arguments))
    command._print(_answer(1), args)
    assert not shown
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    command._print(_answer(1), args)
    assert len(shown) == 1
    args.format = "ndjson"
    command._print(_answer(1), args)
    assert len(shown) == 1


def test_json_keeps_the_requested_number_of_objects(capsys: pytest.CaptureFixture[str]) -> None:
    args = command.argparse.Namespace(format="ndjson", limit=2, objects=False)  # type: ignore[attr-defined]
    command._print(_answer(5), args)
    assert capsys.readouterr().out == '{"query": "q", "objects": [0, 1]}\n'
    args.limit = None
    command._print(_answer(5), args)
    assert capsys.readouterr().out == '{"query": "q", "objects": [0, 1, 2, 3, 4]}\n'


def test_geojson_and_tables_are_there_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    args = command.argparse.Namespace(format="geojson", limit=2, objects=False)  # type: ignore[attr-defined]
    command._print(_answer(5, arrives=True), args)
    found = json.loads(capsys.readouterr().out)
    # The newest first.
    assert [each["id"] for each in found["features"]] == [4, 3]
    assert found["features"][0]["geometry"] == {"type": "Point", "coordinates": [1.5, 2.5]}
    args.format = "table"
    command._print(_answer(5, arrives=True), args)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["4", "3"]
    assert lines[-1] == "2 of 5 objects: --limit N"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import sirocco  # noqa: PLC0415

    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    written = tomllib.loads((Path(sirocco.__file__).parents[1] / "pyproject.toml").read_text())
    assert capsys.readouterr().out == f"sirocco {written['project']['version']}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("publish", "queries", "completion"):
        assert word in script
    if shell != "tcsh":
        assert "--from-earliest" in script
        assert "unregister" in script
