"""Objects of moving vehicles: tracked, and filtered by attributes that change."""

from __future__ import annotations

import random
from typing import Any

_WORDS = (
    "bus",
    "tram",
    "full",
    "late",
    "stop",
    "closed",
    "detour",
    "door",
    "rain",
    "Zürich",
    "गाड़ी",
)
_STATUS = ("open", "closed", "on the way")

# Arrivals are multiples of this, so that some are exactly at borders of windows and steps.
_GRAIN_MS = 250


def moving_vehicles(count: int, seed: int, *, vehicles: int = 30) -> list[dict[str, Any]]:
    """Returns the reports of vehicles, in random order of the vehicles.

    They move in straight lines through a city that lies on the antimeridian, and turn back at its
    border. Names of vehicles are strings and numbers, `1` beside `"1"`; some objects name none.

    Args:
        count: How many objects.
        seed: For all random draws.
        vehicles: How many move.
    """
    dice = random.Random(seed)
    fleet = [_Vehicle(dice, number) for number in range(vehicles)]
    ts = 1_700_000_000_000
    objects: list[dict[str, Any]] = []
    for number in range(count):
        ts += _GRAIN_MS * dice.randint(0, 8)
        vehicle = dice.choice(fleet)
        vehicle.move(dice)
        one: dict[str, Any] = {"id": number, "ts": ts, **vehicle.members(dice)}
        if number and dice.random() < 0.05:
            one["ts"] = dice.choice([None, ts - 60_000])
        if dice.random() < 0.05:
            one["id"] = dice.choice([f"message {number}", max(0, number - 10), 2**64 - 1 - number])
        if dice.random() < 0.05:
            one["vehicle"] = None
        objects.append(one)
    return objects


class _Vehicle:
    """The place of a vehicle; x and y in [-0.2, 0.2] degrees around the middle of the city."""

    def __init__(self, dice: random.Random, number: int) -> None:
        self._name: object = number // 2 if number % 2 else f"{number // 2}"
        self._x, self._y = dice.uniform(-0.2, 0.2), dice.uniform(-0.2, 0.2)
        self._dx, self._dy = dice.uniform(-0.02, 0.02), dice.uniform(-0.02, 0.02)
        self._status = _STATUS[0]

    def move(self, dice: random.Random) -> None:
        """Moves on, or stays for a while."""
        if dice.random() < 0.2:
            self._status = dice.choice(_STATUS)
            return
        self._x, self._y = self._x + self._dx, self._y + self._dy
        if abs(self._x) > 0.2:
            self._dx = -self._dx
        if abs(self._y) > 0.2:
            self._dy = -self._dy

    def members(self, dice: random.Random) -> dict[str, Any]:
        """Returns the members of an object at present, except id and time."""
        lon = round(180 + self._x, 4)
        members: dict[str, Any] = {
            "lon": lon - 360 if lon > 180 else lon,
            "lat": round(self._y - 17, 4),
            "text": " ".join(dice.choices(_WORDS, k=dice.randint(0, 5))),
            "vehicle": self._name,
            "status": self._status,
            "speed": round(500 * (abs(self._dx) + abs(self._dy)), 1),
        }
        if dice.random() < 0.1:
            members["speed"] = dice.choice(["unknown", None, 7])
        return members
