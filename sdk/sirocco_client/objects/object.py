"""Objects as a user publishes and receives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Object:
    """One published item.

    Attributes:
        id: Unsigned 64-bit number or a string.
        lon: Degrees (WGS 84).
        lat: Degrees (WGS 84).
        text: Text that expressions match; empty for none.
        ts_ms: Event time, epoch ms; None: the time of arrival.
        attributes: Further members, JSON values by name.
    """

    id: int | str
    lon: float
    lat: float
    text: str = ""
    ts_ms: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def members(self) -> dict[str, Any]:
        """Returns the public JSON form: attributes, id, ts, lon, lat and text in one object."""
        members = {**self.attributes, "id": self.id, "lon": self.lon, "lat": self.lat}
        if self.ts_ms is not None:
            members["ts"] = self.ts_ms
        if self.text != "":
            members["text"] = self.text
        return members

    def to_geojson(self, **properties: Any) -> dict[str, Any]:
        """Returns the object as a Feature; `properties` are added to its own."""
        own: dict[str, Any] = dict(self.attributes)
        if self.text != "":
            own["text"] = self.text
        if self.ts_ms is not None:
            own["ts"] = self.ts_ms
        return {
            "type": "Feature",
            "id": self.id,
            "geometry": {"type": "Point", "coordinates": [self.lon, self.lat]},
            "properties": own | properties,
        }
