"""Figures of a running cluster, as JSON for the console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sirocco_client import Balance, ClusterDescription

# Leaves that are sent: more boxes than pixels help nobody.
LEAVES_MAX = 5_000

_MEMBERS_MAX = 500
_DECISIONS_MAX = 10

# Counts that members report; each becomes a rate.
_COUNTS = {"routed_objects": "objects_per_s", "matches": "matches_per_s"}

# Part of the last measurement in a leaf's load: the rest is what was measured before.
_NEW_PART = 0.4


@dataclass(slots=True)
class _Count:
    value: float
    at_s: float
    per_s: float | None = None


class Rates:
    """Rates from counts that are read now and then.

    Members renew their counts every few seconds: a count that stays the same may only be old.
    """

    def __init__(self, stale_s: float = 15.0) -> None:
        self._stale_s = stale_s
        self._counts: dict[tuple[str, str], _Count] = {}

    def read(self, counts: Mapping[tuple[str, str], float], now_s: float) -> None:
        """Takes the present counts; those that are no longer there are forgotten."""
        for key in self._counts.keys() - counts.keys():
            del self._counts[key]
        for key, value in counts.items():
            last = self._counts.get(key)
            if last is None or value < last.value:
                self._counts[key] = _Count(value, now_s)
            elif value > last.value and now_s > last.at_s:
                per_s = (value - last.value) / (now_s - last.at_s)
                self._counts[key] = _Count(value, now_s, per_s)
            elif now_s - last.at_s > self._stale_s:
                self._counts[key] = _Count(value, now_s, 0.0)

    def per_s(self, key: tuple[str, str]) -> float | None:
        """Returns a rate; None before two counts were read."""
        found = self._counts.get(key)
        return None if found is None else found.per_s


class LeafLoads:
    """What part of the arriving objects each leaf gets, by the counts of the answering router."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._loads: dict[int, float] = {}
        self._map_version = 0

    def read(self, found: ClusterDescription) -> list[float]:
        """Returns the part of each leaf, 0 to 1."""
        if found.map_version != self._map_version:
            self._counts, self._loads, self._map_version = {}, {}, found.map_version
        counts = {leaf.id: leaf.objects for leaf in found.leaves}
        grown = {leaf: count - self._counts.get(leaf, count) for leaf, count in counts.items()}
        self._counts = counts
        # Less than before: another router has answered, or it has started anew.
        if min(grown.values(), default=0) >= 0:
            total = sum(grown.values())
            for leaf, more in grown.items():
                last = self._loads.get(leaf, 0.0)
                part = more / total if total else 0.0
                self._loads[leaf] = part if not last else last + _NEW_PART * (part - last)
        return [round(self._loads.get(leaf.id, 0.0), 4) for leaf in found.leaves[:LEAVES_MAX]]


def map_members(found: ClusterDescription) -> dict[str, Any]:
    """Returns the map in force and who owns its slots."""
    return {
        "version": found.map_version,
        "scheme": found.scheme,
        "slots": found.slot_count,
        "leaf_count": found.leaf_count,
        "leaves": [
            [leaf.id, leaf.slot, leaf.west, leaf.south, leaf.east, leaf.north, leaf.is_text]
            for leaf in found.leaves[:LEAVES_MAX]
        ],
        "owners": {
            str(one.partition): one.member for one in found.ownerships if one.topic == "slots"
        },
    }


def member_counts(found: ClusterDescription) -> dict[tuple[str, str], float]:
    """Returns the counts of all members, by member and name."""
    return {
        (member.id, name): member.loads[name]
        for member in found.members[:_MEMBERS_MAX]
        for name in _COUNTS
        if name in member.loads
    }


def members_members(found: ClusterDescription, rates: Rates) -> list[dict[str, Any]]:
    """Returns the processes of the cluster."""
    owned: dict[str, int] = {}
    for one in found.ownerships:
        owned[one.member] = owned.get(one.member, 0) + (one.topic == "slots")
    return [
        {
            "id": member.id,
            "service": member.service,
            "slots": owned.get(member.id, 0),
            **{
                rate: rounded(rates.per_s((member.id, count)))
                for count, rate in _COUNTS.items()
                if count in member.loads
            },
        }
        for member in found.members[:_MEMBERS_MAX]
    ]


def total_per_s(members: Iterable[Mapping[str, Any]], service: str, rate: str) -> float | None:
    """Returns the sum of a rate over the members of a service; None before one is known."""
    known = [one[rate] for one in members if one["service"] == service and rate in one]
    known = [value for value in known if value is not None]
    return sum(known) if known else None


def balance_members(found: Balance) -> dict[str, Any]:
    """Returns the last decisions of the balancer and the state of its last round."""
    return {
        "on": found.is_on,
        "balancer": found.balancer,
        "imbalance": round(found.imbalance, 3),
        "state": found.state,
        "moves": found.moves_total,
        "map_changes": found.map_changes_total,
        "decisions": [
            {
                "at": one.at_ms,
                "reason": one.reason,
                "moves": one.moves,
                "map_version": one.map_version,
                "outcome": one.outcome,
                "seconds": round(one.seconds, 2),
            }
            for one in found.decisions[:_DECISIONS_MAX]
        ],
    }


def rounded(value: float | None) -> float | None:
    """Returns a figure with a digit after the point."""
    return None if value is None else round(value, 1)
