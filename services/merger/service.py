"""The merger: writes deliveries, serves subscribers, and gathers searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import grpc
from sirocco_api.v1.receive_service_pb2_grpc import add_ReceiveServiceServicer_to_server
from sirocco_api.v1.search_service_pb2_grpc import add_SearchServiceServicer_to_server

from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.merger.machine import MergerMachine, MergerSettings, Window
from sirocco.runtime.service import Parts, Service
from sirocco.services.merger.delivery_traces import DeliveryTraces
from sirocco.services.merger.members import Members
from sirocco.services.merger.receive import ReceiveFront
from sirocco.services.merger.search import SearchFront
from sirocco.services.merger.search_traces import SearchTraces
from sirocco.telemetry.metrics.merger import MergerMetrics


class MergerService(Service):
    """One merger."""

    name = "merger"
    traced_as = "merge"

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings
        member = self.new_member(parts)
        shared = MergerSettings(
            settings.slots,
            settings.retained_bytes_max,
            settings.step_bytes_max,
            parts.limits.merger,
        )
        self.machine = MergerMachine(member, shared)
        super().__init__(parts, member, self.machine)
        self._metrics = MergerMetrics(self.registry)
        self._front = ReceiveFront(
            parts.log,
            settings.partials_partitions,
            self._metrics,
            settings.merger,
            traces=None if self.spans is None else DeliveryTraces(self.spans),
        )
        self._searches = SearchFront(
            settings,
            self.machine.holdings.view,
            Members(parts.store),
            self._metrics,
            parts.security.dialer,
            parts.limits.search,
            None if self.spans is None else SearchTraces(self.spans),
        )

    def servicers(self) -> Sequence[Callable[[grpc.aio.Server], None]]:
        """Servicers for clients."""
        return (
            partial(add_ReceiveServiceServicer_to_server, self._front),
            partial(add_SearchServiceServicer_to_server, self._searches),
        )

    def refresh(self) -> None:
        """Updates gauges."""
        self._front.refresh()
        self._metrics.partitions.set(len(self.machine.windows))
        self._metrics.merged_matches.set(self.machine.matches_total)
        self._metrics.repeated_matches.set(self.machine.repeats_total)
        windows = list(self.machine.windows.values())
        steps = [window.lists.steps for window in windows]
        self._metrics.open_lists.set(sum(len(window.lists) for window in windows))
        versions = [window.lists.versions for window in windows]
        self._metrics.ended_versions.set(sum(map(len, versions)))
        self._metrics.early_versions.set(sum(each.early for each in versions))
        self._metrics.pending_steps.set(sum(each.pending_steps for each in steps))
        self._metrics.pending_step_bytes.set(sum(each.bytes_total for each in steps))
        self._metrics.step_lag.set(max(map(_step_lag_s, windows), default=0.0))
        self._metrics.late_parts.set(sum(each.late_parts for each in steps))
        self._metrics.partial_steps.set(sum(each.partial_steps for each in steps))

    def loads(self) -> dict[str, float]:
        """Kafka partitions owned, matches since start."""
        return {
            "partitions": float(len(self.machine.windows)),
            "matches": float(self.machine.matches_total),
        }

    def is_ready(self) -> bool:
        """Ready when all granted partitions are loaded."""
        return super().is_ready() and self.machine.holdings.ready

    def hang_up(self) -> None:
        """Lets running searches finish, then ends the streams to evaluators."""
        self.server.call(self._searches.drain())

    def close(self) -> None:
        """Stops reading deliveries."""
        self._front.close()


def _step_lag_s(window: Window) -> float:
    """By how much the slots have passed the earliest waiting step, in the log's time."""
    earliest_ms = window.lists.steps.earliest_ms
    newest_ms = max(list(window.reached.times_ms.values()), default=NO_TIME_MS)
    if earliest_ms is None or newest_ms == NO_TIME_MS:
        return 0.0
    return max(0, newest_ms - earliest_ms) / 1_000
