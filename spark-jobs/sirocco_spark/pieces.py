"""The blobs that hold a slot's objects: slices and checkpoints, whole or in part, and successors.

A running system replaces what it has written: slices are merged into larger ones, and a newer
checkpoint replaces an older one, whose objects are in the new one or have been sealed into slices
(docs/adr/0012). A slice's name shows which objects it holds. So a reader that finds a piece gone
looks for the blobs that hold its objects now; the objects themselves never change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import orjson

from sirocco.codec.checkpoint import read_state
from sirocco.codec.slices import read_rows
from sirocco.index.base.stored_rows import StoredRows
from sirocco.model.errors import Internal, InvalidArgument, Unavailable
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.contract.partition_ownership import checkpoint_prefix
from sirocco.transport.errors import BlobNotFound
from sirocco_spark.blobs import Blobs

# Of a compacted dataset: the names of its slices. It is written last, and without it the dataset is
# invisible: see `compaction.py`.
MANIFEST = "compacted.json"

SLICE = re.compile(r"(?:slices|compacted)/(\d{5,})/(\d{16,})-(\d{16,})")
CHECKPOINT = re.compile(rf"checkpoints/{SLOTS}/(\d{{5,}})/(\d{{16,}}-\d{{12,}})")

# Names are listed and then read; a listed blob stays for a checkpoint's interval of at least 15 s,
# so a reader that is overtaken this often is not reading at all.
LOOKS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A blob that holds objects of a slot.

    Attributes:
        name: Of the blob.
        slot: Number of the slot.
        first, last: The range of the slot's objects to read from it, inclusive.
        rows: Objects in it.
        bytes: Its size.
        arrival_first, arrival_last: Bounds of arrivals of all its objects, epoch ms.
    """

    name: str
    slot: int
    first: int
    last: int
    rows: int
    bytes: int
    arrival_first: int
    arrival_last: int


@dataclass(frozen=True, slots=True)
class Part:
    """A blob that was read, and the objects to use of it.

    Attributes:
        name: Of the blob.
        contents: Its bytes.
        first, last: The range of the slot's objects, inclusive.
    """

    name: str
    contents: bytes
    first: int
    last: int

    @property
    def is_slice(self) -> bool:
        """Whether it is a slice; otherwise it is a checkpoint."""
        return SLICE.fullmatch(self.name) is not None

    def rows(self) -> StoredRows:
        """The objects."""
        stored = read_rows if self.is_slice else _checkpoint_rows
        rows = stored(self.contents)
        wanted = (rows.seqs >= self.first) & (rows.seqs <= self.last)
        return rows if wanted.all() else rows.take(np.flatnonzero(wanted))


def item_of(pieces: Sequence[Piece]) -> str:
    """Returns the string form of a task's pieces."""
    return orjson.dumps([asdict(piece) for piece in pieces]).decode()


def pieces_of(item: str) -> list[Piece]:
    """Returns the pieces of a task."""
    return [Piece(**one) for one in orjson.loads(item)]


def piece_names(blobs: Blobs) -> list[str]:
    """Returns the names of the blobs that may hold objects."""
    try:
        listed = orjson.loads(blobs.read(MANIFEST))
        return [one["name"] for one in listed["slices"]]
    except BlobNotFound:
        pass
    except (orjson.JSONDecodeError, LookupError, TypeError):
        raise InvalidArgument(f"{MANIFEST} is damaged", field="archive") from None
    # Before the slices: then the slices that a checkpoint needs are there.
    checkpoints = checkpoint_names(blobs)
    return blobs.list("slices/") + checkpoints


def checkpoint_names(blobs: Blobs) -> list[str]:
    """Returns the name of the newest checkpoint of each slot."""
    newest: dict[str, str] = {}
    for name in blobs.list(f"checkpoints/{SLOTS}/"):
        newest[name.rpartition("/")[0]] = name
    return list(newest.values())


def cover(pieces: Sequence[Piece]) -> list[Piece]:
    """Chooses pieces that hold every object of their slots once, the widest first."""
    chosen: list[Piece] = []
    slot, reached = -1, -1
    for piece in sorted(pieces, key=lambda p: (p.slot, p.first, -p.last)):
        if piece.slot != slot:
            slot, reached = piece.slot, -1
        if piece.last > reached and piece.last >= piece.first:
            chosen.append(replace(piece, first=max(piece.first, reached + 1)))
            reached = piece.last
    return chosen


def stored_rows(state: State) -> StoredRows:
    """Returns the objects of a slot's checkpoint that are not in a slice yet."""
    columns = {n.removeprefix("store."): c for n, c in state.items() if n.startswith("store.")}
    return StoredRows.from_columns(columns)


def _checkpoint_rows(contents: bytes) -> StoredRows:
    return stored_rows(read_state(contents))


def newest_state(blobs: Blobs, name: str) -> tuple[State | None, str]:
    """Returns (state, "") of a checkpoint or its successor, or (None, the reason)."""
    for _ in range(LOOKS_MAX):
        try:
            return read_state(blobs.read(name)), ""
        except Internal as error:
            return None, f"is damaged or cut off: {error}"
        except BlobNotFound:
            newer = blobs.list(name.rpartition("/")[0] + "/")
        if not newer:
            break
        name = newer[-1]
    return None, "has left the archive meanwhile"


def slice_named(name: str) -> Piece | None:
    """Returns a slice from its name alone: without its size and times."""
    match = SLICE.fullmatch(name)
    if match is None:
        return None
    slot, first, last = (int(part) for part in match.groups())
    return Piece(
        name=name,
        slot=slot,
        first=first,
        last=last,
        rows=last - first + 1,
        bytes=0,
        arrival_first=0,
        arrival_last=0,
    )


def has_heirs(name: str, pieces: Sequence[Piece]) -> bool:
    """Returns whether other pieces hold the objects of a blob that is gone."""
    if gone := slice_named(name):
        return bool(_within(gone, [piece for piece in pieces if piece.slot == gone.slot]))
    folder = name.rpartition("/")[0]
    return any(piece.name.rpartition("/")[0] == folder for piece in pieces)


def held_now(blobs: Blobs, piece: Piece) -> list[Part]:
    """Reads a piece, or the blobs that hold its objects now, each once.

    Raises:
        Unavailable: They have left the archive.
    """
    try:
        return [Part(piece.name, blobs.read(piece.name), piece.first, piece.last)]
    except BlobNotFound:
        pass
    for _ in range(LOOKS_MAX):
        try:
            parts = _slices_with(blobs, piece) or _all_with(blobs, piece)
        except BlobNotFound:
            # One of these was replaced, too.
            continue
        if parts:
            return parts
    raise Unavailable(f"{piece.name} has left the archive while the job ran; begin it again")


def _slices_with(blobs: Blobs, piece: Piece) -> list[Part]:
    """Reads the slices that hold all objects of a piece; none if some objects are in no slice."""
    return _parts(blobs, _within(piece, _listed(blobs, piece.slot)), {})


def _all_with(blobs: Blobs, piece: Piece) -> list[Part]:
    """Reads the slices and the checkpoint that hold all objects of a piece; none if some are gone.

    The checkpoint is read first: the slices of its older objects exist by then.
    """
    names = blobs.list(checkpoint_prefix(SLOTS, piece.slot))
    if not names:
        return []
    contents = blobs.read(names[-1])
    seqs = _checkpoint_rows(contents).seqs
    first, last = (int(seqs.min()), int(seqs.max())) if len(seqs) else (0, -1)
    newest = replace(piece, name=names[-1], first=first, last=last)
    chosen = _within(piece, [*_listed(blobs, piece.slot), newest])
    return _parts(blobs, chosen, {newest.name: contents})


def _parts(blobs: Blobs, chosen: Sequence[Piece], read: Mapping[str, bytes]) -> list[Part]:
    return [
        Part(one.name, read.get(one.name) or blobs.read(one.name), one.first, one.last)
        for one in chosen
    ]


def _listed(blobs: Blobs, slot: int) -> list[Piece]:
    found = (slice_named(name) for name in blobs.list(f"slices/{slot:05}/"))
    return [piece for piece in found if piece is not None]


def _within(piece: Piece, others: Sequence[Piece]) -> list[Piece]:
    """Chooses blobs that hold all objects of a piece, limited to it; none if some are missing."""
    clipped = [
        replace(one, first=max(one.first, piece.first), last=min(one.last, piece.last))
        for one in others
    ]
    chosen = cover(clipped)
    held = sum(one.last - one.first + 1 for one in chosen)
    return chosen if held == piece.last - piece.first + 1 else []
