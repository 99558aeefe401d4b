"""Which columns of a table are an object's place, time, text and id; all others are attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sirocco.model.errors import InvalidArgument
from sirocco.model.members import shown

# What a user chose: member → columns. Only `text` may have several.
ChosenColumns: TypeAlias = Mapping[str, Sequence[str]]

# Names that are taken without being chosen, the first that there is. Names that also mean other
# things, such as `date` or `name`, are left to the user.
_USUAL = {
    "id": ("id", "_id", "fid", "uid", "uuid", "objectid"),
    "lon": ("lon", "longitude", "lng", "long", "x"),
    "lat": ("lat", "latitude", "y"),
    "ts": ("ts", "timestamp", "time"),
    "text": ("text", "message", "body", "description"),
}
_REQUIRED = ("id", "lon", "lat")

# Each column is looked at in each row.
COLUMNS_MAX = 1_000
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Columns:
    """Places of columns in a row.

    Attributes:
        id, lon, lat: Places of these members; None where a format has them elsewhere.
        ts: Of the time, None if there is none.
        text: Of the texts, which are joined by spaces.
        others: (place, name) of the attributes.
    """

    id: int | None
    lon: int | None
    lat: int | None
    ts: int | None
    text: tuple[int, ...]
    others: tuple[tuple[int, str], ...]


def read_map(text: str) -> dict[str, tuple[str, ...]]:
    """Reads `lon=COLUMN,lat=COLUMN,text=A+B,ts=COLUMN,id=COLUMN`, of which any may be missing.

    Raises:
        InvalidArgument: It is none.
    """
    chosen: dict[str, tuple[str, ...]] = {}
    for part in text.split(","):
        member, equals, names = part.partition("=")
        member = member.strip()
        if member not in _USUAL or not equals or not names.strip():
            raise InvalidArgument(
                f"{shown(part)} is none of lon=, lat=, ts=, id=COLUMN, text=COLUMN+COLUMN",
                field="map",
            )
        if member in chosen:
            raise InvalidArgument(f"names {member} twice", field="map")
        # A plus may be part of a name; only texts are joined.
        columns = names.split("+") if member == "text" else [names]
        chosen[member] = tuple(column.strip() for column in columns)
        # Each row would be joined of as many cells as are named.
        if len(set(chosen[member])) < len(columns):
            raise InvalidArgument(f"names a column of {member} twice", field="map")
    return chosen


def find_columns(
    names: Sequence[str], chosen: ChosenColumns, *, elsewhere: Sequence[str] = ()
) -> Columns:
    """Returns the columns of a table by its header.

    Args:
        names: Those of the header.
        chosen: What the user chose; the rest goes by its usual name, in any case.
        elsewhere: Members that this table has in other ways.

    Raises:
        InvalidArgument: A column is missing, or there are two of a name.
    """
    if len(names) > COLUMNS_MAX:
        raise InvalidArgument(f"has more than {COLUMNS_MAX} columns", field="header")
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in places:
            raise InvalidArgument(f"has two columns {shown(name)}", field="header")
        places[name] = place
    lower = {name.lower(): place for name, place in reversed(places.items())}
    found: dict[str, tuple[int, ...]] = {}
    for member, usual in _USUAL.items():
        if member in chosen:
            found[member] = tuple(_place(column, places) for column in chosen[member])
            continue
        found[member] = next(((lower[name],) for name in usual if name in lower), ())
        if not found[member] and member in _REQUIRED and member not in elsewhere:
            raise InvalidArgument(
                f"has no column for {member}: the map names it, as {member}=COLUMN; "
                f"there are {_listed(names)}",
                field="header",
            )
    used = {place for places_of in found.values() for place in places_of}
    single = {member: next(iter(found[member]), None) for member in ("id", "lon", "lat", "ts")}
    others = ((place, name) for place, name in enumerate(names) if place not in used)
    # An attribute cannot have the name of a fixed member, nor none.
    kept = tuple((place, name) for place, name in others if name and name not in _USUAL)
    return Columns(text=found["text"], others=kept, **single)


def has_place(names: Sequence[str]) -> bool:
    """Whether a header has columns of the usual names for lon and lat."""
    lower = {name.lower() for name in names}
    return all(lower & set(_USUAL[member]) for member in ("lon", "lat"))


def _place(column: str, places: Mapping[str, int]) -> int:
    if column not in places:
        raise InvalidArgument(
            f"there is no column {shown(column)}; there are {_listed(list(places))}", field="map"
        )
    return places[column]


def _listed(names: Sequence[str]) -> str:
    shown_names = ", ".join(f"{name:.40}" for name in names[:_SHOWN_MAX])
    return shown_names + (", …" if len(names) > _SHOWN_MAX else "")


def joined(texts: Sequence[Any]) -> str:
    """Returns the text of several columns, without empty ones."""
    return " ".join(str(text) for text in texts if text is not None and text != "")
