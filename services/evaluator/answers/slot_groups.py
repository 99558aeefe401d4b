"""Groups of slots that one call searches together."""

from __future__ import annotations

from collections.abc import Iterator

from sirocco.services.evaluator.answers.slot_interface import SlotSearch, Wanted


def together(wanted: Wanted, searches: list[SlotSearch]) -> Iterator[list[SlotSearch]]:
    """Yields the slots to rank, one group at a time.

    Slices outside memory are loaded for one slot at a time. With a filter on attributes, all
    objects with a keyword are kept until they are filtered.
    """
    in_memory = []
    for search in searches:
        if search.is_in_memory(wanted.bounds):
            in_memory.append(search)
        else:
            yield [search]
    yield from grouped(wanted, in_memory)


def grouped(wanted: Wanted, searches: list[SlotSearch]) -> Iterator[list[SlotSearch]]:
    """Yields slots that are searched together: one call reads a bounded number of objects."""
    # A filter on attributes may require reading all rows, one by one.
    rows_max = wanted.limits.nearest_rows if wanted.condition.is_exact else 0
    group: list[SlotSearch] = []
    rows = 0
    for search in searches:
        further = search.view.objects_total
        if group and rows + further > rows_max:
            yield group
            group, rows = [], 0
        group.append(search)
        rows += further
    if group:
        yield group
