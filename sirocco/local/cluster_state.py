"""The file that names what a local cluster consists of, for other commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sirocco.local.service_process import GATEWAY, SERVICES, Addresses, LocalClusterSettings

STATE = "cluster.json"
"""Name of the file that names what a local cluster consists of."""

LAST = "cluster.last.json"
"""Name of the file that names what it consisted of when it was stopped."""

# Errors of reading something that is no state.
DAMAGED = (ValueError, TypeError, LookupError, AttributeError)


def write_state(
    path: Path, settings: LocalClusterSettings, addresses: Mapping[str, Addresses | None]
) -> None:
    """Writes settings, and where the processes listen by their names; replaces the file at once."""
    state: dict[str, Any] = {
        "settings": {
            "cluster": settings.cluster,
            "kafka": settings.kafka,
            "redis": settings.redis,
            "archive": settings.archive,
            "counts": dict(settings.counts),
            "options": dict(settings.options),
        },
        "addresses": {
            name: at and {"grpc": at.grpc, "http": at.http} for name, at in addresses.items()
        },
    }
    written = path.with_name(f"{path.name}.new")
    written.write_text(json.dumps(state, indent=1))
    written.rename(path)


def last_settings(directory: Path) -> dict[str, Any]:
    """Returns the settings of the cluster of a directory when it was stopped; empty for none."""
    found: dict[str, Any] = read_state(directory / LAST).get("settings", {})
    return found


def routers_of(directory: Path) -> tuple[str, ...]:
    """Returns where the routers of the cluster of a directory listen; empty: there is none."""
    found = addresses_of(read_state(directory / STATE)).items()
    return tuple(at.grpc for name, at in found if name.startswith("router-") and at is not None)


def read_state(path: Path) -> dict[str, Any]:
    """Returns a state that was written; empty where there is none that can be read."""
    try:
        text = path.read_bytes()
        parsed_state(text)
    except (OSError, *DAMAGED):
        return {}
    found: dict[str, Any] = json.loads(text)
    return found


def parsed_state(
    text: bytes,
) -> tuple[LocalClusterSettings, dict[str, Addresses | None]]:
    """Returns settings and addresses of a state as it was written.

    Raises:
        One of `DAMAGED`: It is no state.
    """
    state = json.loads(text)
    settings = LocalClusterSettings(**state["settings"])
    texts = (settings.cluster, settings.kafka, settings.redis, settings.archive)
    if not all(isinstance(each, str) for each in (*texts, *settings.options.values())):
        raise TypeError
    # States of before there were gateways name none.
    counts = [*(settings.counts[each] for each in SERVICES), settings.counts.get(GATEWAY, 0)]
    addresses = addresses_of(state)
    known = [each for each in addresses.values() if each is not None]
    if not all(isinstance(count, int) for count in counts):
        raise TypeError
    if not all(isinstance(part, str) for each in known for part in (each.grpc, each.http)):
        raise TypeError
    if not all(name.rpartition("-")[2].isdecimal() for name in addresses):
        raise ValueError
    return settings, addresses


def addresses_of(state: dict[str, Any]) -> dict[str, Addresses | None]:
    """Returns where processes listen, by their names; None while that is not known."""
    known = state.get("addresses", {}).items()
    return {name: Addresses(**each) if each else None for name, each in known}
