"""The demo's view: figures, the last matches, and the leaves of the world with their load."""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sirocco.cli.terminal.terminal import shown
from sirocco.kernels.base.sorting import sorted_distinct

_MAP_COLUMNS_MAX, _MAP_ROWS_MAX = 100, 26
# Almost nobody lives beyond these latitudes; the rows are better used between them.
_MAP_NORTH, _MAP_SOUTH = 72.0, -56.0
_SHADES = (
    "grey11", "grey19", "dark_blue", "blue", "dodger_blue1", "green", "yellow", "orange1", "red1",
)  # fmt: skip
# Marks instead of colours, if these are not wanted (NO_COLOR).
_MARKS = " .:-=+*#@"
_MATCHES_SHOWN = 14


@dataclass(frozen=True, slots=True)
class Match:
    """One notification as displayed."""

    query: str
    place: str
    lon: float
    lat: float
    text: str

    def line(self) -> str:
        """Returns the plain form."""
        return f"{self.query:<38} {self.place:<26} {self.text}"


@dataclass(frozen=True, slots=True)
class LeafLoad:
    """A leaf of the map in force; degrees, and a load of which only ratios matter."""

    slot: int
    west: float
    south: float
    east: float
    north: float
    load: float


@dataclass(slots=True, kw_only=True)
class DemoState:
    """Data of the view, written by the demo."""

    seconds_total: float
    seconds: float = 0.0
    stage: str = ""
    address: str = ""
    published: int = 0
    published_per_s: float = 0.0
    notified: int = 0
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    by_query: dict[str, int] = field(default_factory=dict)
    matches: deque[Match] = field(default_factory=lambda: deque(maxlen=_MATCHES_SHOWN))
    leaves: Sequence[LeafLoad] = ()
    owners: Mapping[int, str] = field(default_factory=dict)


def render(state: DemoState) -> RenderableType:
    """Returns the whole view."""
    layout = Layout()
    layout.split_column(
        Layout(_header(state), size=3),
        Layout(name="middle", ratio=1),
        Layout(name="bottom", ratio=1),
    )
    layout["middle"].split_row(
        Layout(Panel(LeafMap(state.leaves, state.matches), title="leaves and their load"), ratio=3),
        Layout(Panel(_owners(state), title="evaluators"), ratio=2),
    )
    layout["bottom"].split_row(
        Layout(Panel(_queries(state), title="standing queries"), ratio=2),
        Layout(Panel(_last_matches(state), title="last matches"), ratio=3),
    )
    return layout


class LeafMap:
    """The world as coloured cells: the load of the leaves above each, matches as stars.

    Uses the room that it is given.
    """

    def __init__(self, leaves: Sequence[LeafLoad], matches: Sequence[Match] = ()) -> None:
        self._leaves = leaves
        self._matches = matches

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = max(1, min(options.height or _MAP_ROWS_MAX, _MAP_ROWS_MAX))
        columns = max(1, min(options.max_width, _MAP_COLUMNS_MAX))
        yield leaf_map(self._leaves, self._matches, rows, columns, is_plain=console.no_color)


def leaf_map(
    leaves: Sequence[LeafLoad],
    matches: Sequence[Match],
    rows: int,
    columns: int,
    *,
    is_plain: bool = False,
) -> Text:
    """Returns the map of the given size in characters; plain: load by marks, not by colours."""
    density = leaf_density(leaves, rows, columns)
    # Ranks instead of values: a city is a thousand times as dense as the sea around it.
    order = sorted_distinct(density)
    shades = np.searchsorted(order, density) * (len(_SHADES) - 1) // max(1, len(order) - 1)
    stars = {_cell(match.lon, match.lat, rows, columns) for match in matches}
    text = Text()
    for row in range(rows):
        for column in range(columns):
            rank = int(shades[row, column])
            is_star = (row, column) in stars
            if is_plain:
                text.append("✹" if is_star else _MARKS[rank])
            elif is_star:
                text.append("✹", style=f"bold white on {_SHADES[rank]}")
            else:
                text.append(" ", style=f"on {_SHADES[rank]}")
        text.append("\n")
    return text


def leaf_density(leaves: Sequence[LeafLoad], rows: int, columns: int) -> NDArray[np.float64]:
    """Returns f8[rows, columns]: load per area, summed over overlapping leaves."""
    density = np.zeros((rows, columns))
    lon = (np.arange(columns) + 0.5) * 360 / columns - 180
    lat = _MAP_NORTH - (np.arange(rows) + 0.5) * (_MAP_NORTH - _MAP_SOUTH) / rows
    for leaf in leaves:
        area = max((leaf.east - leaf.west) * (leaf.north - leaf.south), 1e-9)
        inside = np.ix_(
            (lat >= leaf.south) & (lat < leaf.north), (lon >= leaf.west) & (lon < leaf.east)
        )
        if density[inside].size:
            density[inside] += leaf.load / area
        else:  # a leaf smaller than a cell is still shown
            middle = (leaf.west + leaf.east) / 2, (leaf.south + leaf.north) / 2
            density[_cell(*middle, rows, columns)] += leaf.load / area
    return density


def _cell(lon: float, lat: float, rows: int, columns: int) -> tuple[int, int]:
    row = int((_MAP_NORTH - lat) / (_MAP_NORTH - _MAP_SOUTH) * rows)
    column = int((lon + 180) / 360 * columns)
    return min(max(row, 0), rows - 1), min(max(column, 0), columns - 1)


def _header(state: DemoState) -> RenderableType:
    latency = state.latency_ms
    figures = Text.assemble(
        (" sirocco demo ", "bold black on green"),
        f"  {state.stage}   ",
        (f"{state.published:,}", "bold"),
        " objects   ",
        (f"{state.published_per_s:,.0f}", "bold"),
        " objects/s   ",
        (f"{state.notified:,}", "bold"),
        " notifications   latency ",
        (f"p50 {latency.get('p50', 0):.0f} ms  p99 {latency.get('p99', 0):.0f} ms", "bold"),
    )
    bar = ProgressBar(total=state.seconds_total, completed=min(state.seconds, state.seconds_total))
    return Group(figures, Text(state.address and f"on a map: {state.address}", "dim"), bar)


def _last_matches(state: DemoState) -> RenderableType:
    table = Table(box=None, expand=True, pad_edge=False)
    table.add_column("query", style="cyan", no_wrap=True, ratio=3)
    table.add_column("place", style="green", no_wrap=True, ratio=2)
    table.add_column("text", no_wrap=True, ratio=5)
    for match in reversed(state.matches):
        table.add_row(match.query, _even(match.place), Text(_even(match.text)))
    return table


def _even(text: str) -> str:
    """Removes words with combining marks.

    Terminals disagree on their width, and a line wider than counted makes the whole view jump.
    """
    words = ["…" if any(map(_is_mark, word)) else word for word in text.split()]
    kept = (word for word, last in zip(words, ["", *words], strict=False) if word != last)
    return shown(" ".join(kept))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _queries(state: DemoState) -> RenderableType:
    table = Table(box=None, expand=True, pad_edge=False)
    table.add_column("query", style="cyan", no_wrap=True)
    table.add_column("matches", justify="right")
    for name, count in state.by_query.items():
        table.add_row(name, f"{count:,}")
    return table


def _owners(state: DemoState) -> RenderableType:
    loads: dict[str, float] = {}
    leaves: dict[str, int] = {}
    for leaf in state.leaves:
        owner = state.owners.get(leaf.slot, "nobody")
        loads[owner] = loads.get(owner, 0.0) + leaf.load
        leaves[owner] = leaves.get(owner, 0) + 1
    table = Table(box=None, expand=True, pad_edge=False)
    table.add_column("owner", no_wrap=True)
    table.add_column("leaves", justify="right")
    table.add_column("load", ratio=1)
    greatest = max(loads.values(), default=0.0) or 1.0
    for owner in sorted(loads):
        bar = ProgressBar(total=greatest, completed=loads[owner])
        table.add_row(owner, str(leaves[owner]), bar)
    return table
