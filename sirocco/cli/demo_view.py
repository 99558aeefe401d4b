"""What the demo shows: figures, the last matches, and the leaves of the world with their load."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_MAP_COLUMNS, _MAP_ROWS = 72, 20
# Nobody lives beyond; the rows are better spent between.
_MAP_NORTH, _MAP_SOUTH = 72.0, -56.0
_SHADES = (
    "grey11", "grey19", "dark_blue", "blue", "dodger_blue1", "green", "yellow", "orange1", "red1",
)  # fmt: skip
_MATCHES_SHOWN = 14


@dataclass(frozen=True, slots=True)
class Match:
    """One notification as it is shown."""

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
    """A leaf of the map in force; degrees, and a load of which only ratios mean something."""

    slot: int
    west: float
    south: float
    east: float
    north: float
    load: float


@dataclass(slots=True)
class DemoState:
    """What the view shows; written by the demo, read by the view."""

    seconds_total: float
    seconds: float = 0.0
    stage: str = ""
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
        Layout(_header(state), size=4),
        Layout(name="middle", ratio=1),
        Layout(name="bottom", ratio=1),
    )
    layout["middle"].split_row(
        Layout(
            Panel(leaf_map(state.leaves, state.matches), title="leaves and their load"), ratio=3
        ),
        Layout(Panel(_owners(state), title="evaluators"), ratio=2),
    )
    layout["bottom"].split_row(
        Layout(Panel(_last_matches(state), title="last matches"), ratio=3),
        Layout(Panel(_queries(state), title="standing queries"), ratio=2),
    )
    return layout


def render_to_text(state: DemoState, width: int = 140, height: int = 50) -> str:
    """Returns the view as plain text."""
    console = Console(width=width, height=height, record=True, file=None, color_system=None)
    with console.capture() as captured:
        console.print(render(state))
    return captured.get()


def leaf_map(leaves: Sequence[LeafLoad], matches: Sequence[Match] = ()) -> Text:
    """Returns the world as coloured cells: the load of the leaves above each, matches as stars."""
    density = _density(leaves)
    shades = np.zeros(density.shape, np.int64)
    if (density > 0).any():
        # Ranks rather than values: a city is a thousand times as dense as the sea around it.
        order = np.unique(density)
        shades = np.searchsorted(order, density) * (len(_SHADES) - 1) // max(1, len(order) - 1)
    stars = {_cell(match.lon, match.lat) for match in matches}
    text = Text()
    for row in range(_MAP_ROWS):
        for column in range(_MAP_COLUMNS):
            shade = _SHADES[int(shades[row, column])]
            if (row, column) in stars:
                text.append("✹", style=f"bold white on {shade}")
            else:
                text.append(" ", style=f"on {shade}")
        text.append("\n")
    return text


def _density(leaves: Sequence[LeafLoad]) -> NDArray[np.float64]:
    """f8[rows, columns]: load per area, summed over leaves that lie above one another."""
    density = np.zeros((_MAP_ROWS, _MAP_COLUMNS))
    lon = (np.arange(_MAP_COLUMNS) + 0.5) * 360 / _MAP_COLUMNS - 180
    lat = _MAP_NORTH - (np.arange(_MAP_ROWS) + 0.5) * (_MAP_NORTH - _MAP_SOUTH) / _MAP_ROWS
    for leaf in leaves:
        area = max((leaf.east - leaf.west) * (leaf.north - leaf.south), 1e-9)
        columns = (lon >= leaf.west) & (lon < leaf.east)
        rows = (lat >= leaf.south) & (lat < leaf.north)
        density[np.ix_(rows, columns)] += leaf.load / area
        if not rows.any() or not columns.any():  # a leaf smaller than a cell still shows
            row, column = _cell((leaf.west + leaf.east) / 2, (leaf.south + leaf.north) / 2)
            density[row, column] = max(density[row, column], leaf.load / area)
    return density


def _cell(lon: float, lat: float) -> tuple[int, int]:
    row = int((_MAP_NORTH - lat) / (_MAP_NORTH - _MAP_SOUTH) * _MAP_ROWS)
    column = int((lon + 180) / 360 * _MAP_COLUMNS)
    return min(max(row, 0), _MAP_ROWS - 1), min(max(column, 0), _MAP_COLUMNS - 1)


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
    return Group(figures, Text(), bar)


def _last_matches(state: DemoState) -> RenderableType:
    table = Table(box=None, expand=True, pad_edge=False)
    table.add_column("query", style="cyan", no_wrap=True, ratio=3)
    table.add_column("place", style="green", no_wrap=True, ratio=2)
    table.add_column("text", no_wrap=True, ratio=5)
    for match in reversed(state.matches):
        table.add_row(match.query, match.place, Text(match.text))
    return table


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
