"""Neighbouring leaves, and the kinds of their borders (Tornado 4.2, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sirocco.schemes.balance.base.draft import DraftLeaf


@dataclass(frozen=True, slots=True)
class Border:
    """The border of a leaf with a neighbour.

    Attributes:
        leaf, neighbour: Their numbers.
        axis: 0: the neighbour is in the west or east; 1: in the south or north.
        is_before: Whether it is in the west or south.
    """

    leaf: int
    neighbour: int
    axis: int
    is_before: bool


@dataclass(frozen=True, slots=True)
class Corner:
    """Two leaves that form a corner, by a strip of one along the other's side.

    Attributes:
        border: Their border.
        at: Position of the split, across the border, degrees.
        first_moves: Whether the part in the west or south of the split joins the neighbour.
    """

    border: Border
    at: float
    first_moves: bool


class Neighbourhood:
    """Finds neighbours in the same frame by the ends of their sides."""

    def __init__(self, leaves: Iterable[tuple[int, DraftLeaf]]) -> None:
        """Indexes leaves.

        Args:
            leaves: (number, leaf); without those of keyword nodes, which overlap.
        """
        self._leaves = dict(leaves)
        # (frame, axis, coordinate of the side, whether the leaf is after it, one of its ends) →
        # leaves.
        self._sides: dict[tuple[object, int, float, bool, float], list[int]] = {}
        for number, leaf in self._leaves.items():
            for axis in (0, 1):
                for is_after in (True, False):
                    at = leaf.box[axis] if is_after else leaf.box[axis + 2]
                    for end in (leaf.box[1 - axis], leaf.box[3 - axis]):
                        key = (leaf.within, axis, at, is_after, end)
                        self._sides.setdefault(key, []).append(number)

    def whole_borders(self, number: int) -> Iterator[Border]:
        """Yields the neighbours that share a whole side: both together form a box."""
        for border in self._borders(number):
            if self._side(number, border.axis) == self._side(border.neighbour, border.axis):
                yield border

    def corners(self, number: int) -> Iterator[Corner]:
        """Yields the neighbours whose whole side is at one end of a side of this leaf.

        Splitting the leaf where that side ends, across its whole width, gives a strip that forms a
        box with the neighbour; so there is only one possible position. At most eight.
        """
        for border in self._borders(number):
            low, high = self._side(number, border.axis)
            first, last = self._side(border.neighbour, border.axis)
            if first == low and last < high:
                yield Corner(border, last, first_moves=True)
            elif last == high and first > low:
                yield Corner(border, first, first_moves=False)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yields each pair of leaves that share a whole side, once."""
        for number in self._leaves:
            for border in self.whole_borders(number):
                if not border.is_before:
                    yield number, border.neighbour

    def _borders(self, number: int) -> Iterator[Border]:
        """Yields the neighbours that share a corner with this leaf."""
        leaf = self._leaves[number]
        for axis in (0, 1):
            for is_before in (True, False):
                at = leaf.box[axis] if is_before else leaf.box[axis + 2]
                seen: set[int] = set()
                for end in self._side(number, axis):
                    key = (leaf.within, axis, at, not is_before, end)
                    seen.update(self._sides.get(key, ()))
                for neighbour in sorted(seen):
                    if self._overlaps(number, neighbour, axis):
                        yield Border(number, neighbour, axis, is_before)

    def _side(self, number: int, axis: int) -> tuple[float, float]:
        """Returns the begin and the end of a leaf's sides across an axis."""
        box = self._leaves[number].box
        return box[1 - axis], box[3 - axis]

    def _overlaps(self, number: int, neighbour: int, axis: int) -> bool:
        low, high = self._side(number, axis)
        first, last = self._side(neighbour, axis)
        return first < high and low < last


def quartets(leaves: Iterable[tuple[int, DraftLeaf]]) -> Iterator[tuple[int, int, int, int]]:
    """Yields each four leaves that are the quarters of a box, divided crosswise at one point."""
    boxes = dict(leaves)
    by_low = {(leaf.within, leaf.box[0], leaf.box[1]): number for number, leaf in boxes.items()}
    for number, leaf in boxes.items():
        west, south, east, north = leaf.box
        beside = by_low.get((leaf.within, east, south))
        above = by_low.get((leaf.within, west, north))
        across = by_low.get((leaf.within, east, north))
        if beside is None or above is None or across is None:
            continue
        if boxes[beside].box[3] != north or boxes[above].box[2] != east:
            continue
        if boxes[across].box[2:] == (boxes[beside].box[2], boxes[above].box[3]):
            yield number, beside, above, across
