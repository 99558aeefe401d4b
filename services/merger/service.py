"""The merger: writes deliveries, hands them to subscribers, and gathers searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import grpc
from sirocco_api.v1.receive_service_pb2_grpc import add_ReceiveServiceServicer_to_server
from sirocco_api.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server

from services.merger.members import Members
from services.merger.receive import ReceiveFront
from services.merger.search import SearchFront
from sirocco.protocol.merger import MergerMachine, MergerSettings
from sirocco.runtime.service import Parts, Service
from sirocco.telemetry.metrics import MergerMetrics


class MergerService(Service):
    """One merger."""

    name = "merger"

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings
        member = self.new_member()
        shared = MergerSettings(settings.slots, settings.retained_bytes_max)
        self.machine = MergerMachine(member, shared)
        super().__init__(parts, member, self.machine)
        self._metrics = MergerMetrics(self.registry)
        self._front = ReceiveFront(parts.log, settings.partials_partitions, self._metrics)
        self._searches = SearchFront(
            settings, self.machine.holdings.view, Members(parts.store), self._metrics
        )

    def servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """What clients call."""
        return (
            partial(add_ReceiveServiceServicer_to_server, self._front),
            partial(add_SearchServiceServicer_to_server, self._searches),
        )

    def refresh(self) -> None:
        """Brings gauges up to date."""
        self._metrics.partitions.set(len(self.machine.windows))
        self._metrics.merged_matches.set(self.machine.matches_total)
        self._metrics.repeated_matches.set(self.machine.repeats_total)

    def loads(self) -> dict[str, float]:
        """Kafka partitions owned, matches since start."""
        return {
            "partitions": float(len(self.machine.windows)),
            "matches": float(self.machine.matches_total),
        }

    def is_ready(self) -> bool:
        """Ready when what was granted is loaded."""
        return super().is_ready() and self.machine.holdings.ready

    def hang_up(self) -> None:
        """Lets searches end that are under way, then ends the streams to evaluators."""
        self.server.call(self._searches.drain())

    def close(self) -> None:
        """Stops reading deliveries."""
        self._front.close()
