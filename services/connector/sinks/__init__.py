"""Sinks: they receive a subscriber's notifications and hand them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sirocco.services.connector.runner import SinkConfig
from sirocco.services.connector.sinks.settings import read_sink_settings


def read_sink(name: str, section: Mapping[str, Any]) -> SinkConfig:
    """Reads the section of a sink.

    Raises:
        InvalidArgument: It cannot be used; `field` is the path of the member.
    """
    return read_sink_settings(name, section)
