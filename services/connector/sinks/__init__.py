"""Sinks: they receive a subscriber's notifications and hand them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sirocco.services.connector.runner import SinkConfig
from sirocco.services.connector.sections import Section


def read_sink(name: str, section: Mapping[str, Any]) -> SinkConfig:
    """Reads the section of a sink.

    Raises:
        InvalidArgument: It cannot be used; `field` is the path of the member.
    """
    Section(section, f"sinks.{name}").choice("kind", ())
    raise AssertionError("no kind is known")
