"""The demo's view fits its space, and shows leaves and matches at their places."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sirocco.cli.demo.view import (
    DemoState,
    LeafLoad,
    LeafMap,
    Match,
    leaf_density,
    leaf_map,
    render,
)
from sirocco.cli.terminal.terminal import console as console_of

EAST = LeafLoad(slot=1, west=0, south=-90, east=180, north=90, load=30.0)
WEST = LeafLoad(slot=0, west=-180, south=-90, east=0, north=90, load=10.0)
TINY = LeafLoad(slot=2, west=2.3, south=48.8, east=2.4, north=48.9, load=5.0)
PARIS = Match("fires", "Paris, FR", 2.35, 48.85, "fire [bold] smoke")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 50), (40, 10)])
def test_the_view_fits_the_terminal(width: int, height: int) -> None:
    state = DemoState(seconds_total=25.0, seconds=5.0, stage="posts", published=1_234)
    state.by_query = {"fires": 1}
    state.leaves, state.owners = [EAST, WEST], {0: "evaluator-a", 1: "evaluator-b"}
    state.matches.append(PARIS)
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(render(state))
    lines = captured.get().splitlines()
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)
    if width >= 80:
        assert "1,234 objects" in lines[0]
        assert "fire [bold]" in captured.get()
        assert "evaluator-b" in captured.get()


def test_density_is_load_by_area_and_tiny_leaves_show() -> None:
    density = leaf_density([EAST, WEST, TINY], 20, 72)
    assert density[10, 60] == 3 * density[10, 10] > 0
    assert density.max() > 1_000 * density[10, 60]


def test_matches_are_stars() -> None:
    text = leaf_map([EAST, WEST], [PARIS], 20, 72).plain
    assert text.count("✹") == 1
    assert text.splitlines()[3][36] == "✹"
    assert leaf_map([], [], 2, 3).plain == "   \n   \n"


def test_without_colours_load_is_shown_by_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(width=40, height=10, file=io.StringIO(), force_terminal=True)
    with console.capture() as captured:
        console.print(LeafMap([EAST, WEST], [PARIS]))
    shown = captured.get()
    assert "\x1b" not in shown
    assert "✹" in shown
    rows = [line for line in shown.splitlines() if line.strip()]
    # Twice three times the load on the same area is visible.
    assert rows[0][-1] != rows[0][0]
    plain = leaf_map([EAST, WEST], [], 4, 8, is_plain=True)
    assert not plain.spans


def test_texts_of_strangers_do_not_command_the_view() -> None:
    hostile = Match("q\x1b[2J", "pla\x9bce", 2.35, 48.85, "a\x1b[31m\nb")
    state = DemoState(seconds_total=1.0)
    state.matches.append(hostile)
    out = console_of(width=140)
    with out.capture() as captured:
        out.print(render(state), height=40)
    assert not set(captured.get()) & set("\x1b\x9b")
    assert "\\x1b[31m" in captured.get()
