"""The interface by which a process runs sources and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sirocco_client import AsyncClient

from sirocco.telemetry.metrics.connector import ConnectorMetrics


@dataclass(frozen=True, slots=True)
class Parts:
    """What sources and sinks share.

    Attributes:
        client: makes calls to the cluster. It tries for hours before it gives up.
        metrics: of the process; each source and sink has its name as a label.
        stop_s: how long one may take to end after it is cancelled.
    """

    client: AsyncClient
    metrics: ConnectorMetrics
    stop_s: float


class Runner(Protocol):
    """A source or a sink at work."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def is_ready(self) -> bool:
        """Whether it does its work at present."""

    async def run(self) -> None:
        """Works until it is cancelled; then ends what is under way and returns or raises it on.

        What may pass is tried again, with pauses that grow up to a limit and are partly random.

        Raises:
            SiroccoError: It cannot go on, whatever time passes.
        """


class SourceConfig(Protocol):
    """The settings of one source."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    def open(self, parts: Parts) -> Runner:
        """Returns the source; it connects to nothing before it runs."""


class SinkConfig(Protocol):
    """The settings of one sink."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    def open(self, parts: Parts) -> Runner:
        """Returns the sink; it connects to nothing before it runs."""
