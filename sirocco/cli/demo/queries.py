"""The standing queries of the demo: readable queries over real places."""

from __future__ import annotations

from typing import Any

_EUROPE = [
    [-10, 36],
    [3, 36.5],
    [12, 37],
    [28, 35],
    [31, 46],
    [31, 60],
    [24, 71],
    [5, 62],
    [-11, 56],
]
_INDIA = [[68, 23], [72, 18], [77, 7.5], [81, 13], [88, 21], [92, 25], [80, 31], [74, 36]]
_JAPAN = [[129, 30], [142, 34.5], [146.5, 44], [141, 46], [135, 38], [128, 34]]
_LATIN_AMERICA = {"west": -118, "south": -56, "east": -34, "north": 32}
_WORLD_PACIFIC = {"west": 140, "south": -50, "east": -100, "north": 60}


def demo_queries() -> tuple[dict[str, Any], ...]:
    """Returns the queries as JSON members."""
    return tuple(
        {"id": name, "kind": "range", "mode": "continuous"} | members
        for name, members in _QUERIES.items()
    )


_QUERIES: dict[str, dict[str, Any]] = {
    "fires in Europe, no drills": {
        "region": {"polygon": [_EUROPE]},
        "text": "fire AND NOT drill",
    },
    "shaking in Japan": {
        "region": {"polygon": [_JAPAN]},
        "text": "earthquake OR aftershock OR (strong AND shaking)",
    },
    "high water in India": {
        "region": {"polygon": [_INDIA]},
        "text": "ANY(flood river rising) AND NOT concert",
    },
    "blackouts in Latin America": {
        "region": {"rect": _LATIN_AMERICA},
        "text": "outage AND (power OR dark OR blackout)",
    },
    "storms around the Pacific": {
        "region": {"rect": _WORLD_PACIFIC},
        "text": "storm AND ANY(wind hail thunder)",
    },
    "free coffee within 500 km of New York": {
        "region": {"circle": {"lon": -74.006, "lat": 40.7128, "radius_m": 500_000}},
        "text": "coffee AND free",
    },
    "goals in Brazil and Argentina": {
        "text": "goal AND match",
        "where": {"country": {"in": ["BR", "AR"]}},
    },
    "Italian in Switzerland": {
        "where": {"country": "CH", "lang": "it"},
    },
    "Москва by name": {
        "text": "Москва OR Moscow OR 莫斯科",
    },
    "cities of ten million": {
        "where": {"population": {"gte": 10_000_000}},
    },
}
