"""The raw figures: rows of plain members by kind, as they are written to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.schemes.loads import INSERTIONS_PER_OBJECT, SlotLoads

Row: TypeAlias = dict[str, Any]

# Workers of the papers' smaller clusters (PS2Stream VI-B and SSTD 7.1: 8), and SSTD's leaves.
SLOTS = 8

# Workloads in tables and plots; real data comes last.
ORDER = ("q1", "q2", "q3", "tornado", "swarm", "hotspot",
         "sstd", "sstd-uniform", "sstd-gaussian", "sstd-clustered")  # fmt: skip
LEAVES = 64

# Members that identify a row; all others are results.
IDENTITY = ("workload", "scheme", "case", "slots", "asked", "side", "area", "keywords", "level",
            "scale")  # fmt: skip


class MissingFigureError(LookupError):
    """A figure is missing: a scheme, a case or data was not there."""


@dataclass(slots=True)
class Figures:
    """All measurements.

    Attributes:
        about: Command, machine, time, revision, seed, sizes.
        rows: Rows by kind: workloads, loads, sweeps, searches, objects, regions, grids, filters,
            forwarding, adapting, replays.
        skipped: What was left out, and why.
        is_again: Rows replace those with the same identity of an earlier run.
    """

    about: Row = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    is_again: bool = False

    def add(self, kind: str, **row: Any) -> Row:
        """Adds a row, rounded to six digits: clocks are not more precise."""
        row = {name: _rounded(value) for name, value in row.items()}
        rows = self.rows.setdefault(kind, [])
        if self.is_again and kind != "constants":
            same = {name: row[name] for name in IDENTITY if name in row}
            for place, old in enumerate(rows):
                if {name: old[name] for name in IDENTITY if name in old} == same:
                    rows[place] = row
                    return row
        rows.append(row)
        return row

    def all(self, kind: str, **wanted: object) -> list[Row]:
        """Returns the rows of a kind with these members."""
        return [
            row
            for row in self.rows.get(kind, [])
            if all(row.get(name) == value for name, value in wanted.items())
        ]

    def forget(self, workloads: Sequence[str]) -> None:
        """Drops all rows of some workloads."""
        for kind, rows in self.rows.items():
            if kind != "replays":
                rows[:] = [row for row in rows if row.get("workload") not in workloads]

    def sort(self) -> None:
        """Sorts the rows in the order of the workloads, including kept ones."""
        place = {name: number for number, name in enumerate(ORDER)}
        for rows in self.rows.values():
            rows.sort(key=lambda row: place.get(row.get("workload", ""), len(place)))

    def one(self, kind: str, **wanted: object) -> Row:
        """Returns the first such row; raises MissingFigureError."""
        for row in self.all(kind, **wanted):
            return row
        raise MissingFigureError(f"no {kind} of {wanted}")

    def load(self, workload: str, scheme: str, **wanted: object) -> Row:
        """Returns the load of a scheme's slots; raises MissingFigureError."""
        return self.one("loads", **{"case": "", "slots": SLOTS, **wanted}, workload=workload,
                        scheme=scheme)  # fmt: skip

    def names(self, kind: str, member: str) -> Iterator[str]:
        """Yields the distinct values of a member in the order of their first rows."""
        yield from dict.fromkeys(row[member] for row in self.rows.get(kind, []))

    def write(self, path: Path) -> None:
        """Writes everything as one JSON object, a row a line."""
        kinds = ",\n".join(
            f"{json.dumps(kind)}: [\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"
            for kind, rows in self.rows.items()
        )
        head = json.dumps(self.about)
        skipped = json.dumps(self.skipped)
        path.write_text(f'{{"about": {head},\n"skipped": {skipped},\n"rows": {{\n{kinds}\n}}}}\n')

    @classmethod
    def read(cls, path: Path) -> Figures:
        """Reads what `write` wrote."""
        found = json.loads(path.read_text())
        return cls(found["about"], found["rows"], found["skipped"])


def load_row(loads: SlotLoads, objects: int, queries: int) -> Row:
    """Returns the members of a row of loads.

    `work_s` is the work of all slots together, `capacity` the objects a second that this many
    cores, one for
    each slot, would bear: until the busiest is overloaded.
    """
    work = loads.work_s(INSERTIONS_PER_OBJECT * objects / max(1, queries))
    products = loads.products()
    row: Row = {name: _plain(value) for name, value in asdict(loads).items()}
    return {
        "object_copies": float(loads.objects.sum()) / objects,
        "wanted_copies": float(loads.wanted.sum()) / objects,
        "query_copies": float(loads.queries.sum()) / queries,
        "products_total": float(products.sum()),
        "products_max": float(products.max()),
        "checks_total": int(loads.checks.sum()),
        "checks_max": int(loads.checks.max()),
        "work_s": float(work.sum()),
        "capacity": objects / float(work.max()),
        # A slot without objects has no work, whatever the clock shows.
        "imbalance": ratio(float(work.max()), float(np.where(loads.objects, work, 0).min())),
        "max_over_mean": float(work.max() / work.mean()),
        "product_imbalance": ratio(float(products.max()), float(products.min())),
        "index_bytes_total": int(loads.index_bytes.sum()),
        "by_slot": row,
    }


def ratio(greatest: float, least: float) -> float | None:
    """Returns Lmax / Lmin; None if a slot has no work."""
    return greatest / least if least > 0 else None


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _plain(values: np.ndarray) -> list[Any]:
    if values.dtype.kind == "f":
        return [float(f"{value:.6g}") for value in values]
    return list(values.tolist())
