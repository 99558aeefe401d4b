"""The coordinator's calls to evaluators and routers: in parallel, with time limits."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from sirocco.codec.loads import read_arrivals, read_details, read_loads, read_sample
from sirocco.internal_api.v1 import arrival_service_pb2 as arrival_pb
from sirocco.internal_api.v1 import load_service_pb2 as pb
from sirocco.internal_api.v1.arrival_service_pb2_grpc import ArrivalServiceStub
from sirocco.internal_api.v1.load_service_pb2_grpc import LoadServiceStub
from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.load_messages import ArrivalReport, LoadReport, SampleReport
from sirocco.runtime.grpc.peer_channels import PLAIN, Channels, Dialer
from sirocco.schemes.balance.base.view import LeafDetail
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTimes:
    """How long a coordinator waits for members.

    Attributes:
        known_s: addresses are looked up again after this time: processes start and end.
        answer_s: a member that does not answer within this time is left out of the round.
        arrivals_s: a router that does not answer within this time is left out of the look.
        save_s: for checkpoints of slots that are to move: some seconds at a million queries.
        warm_s: for past objects of a slot that is to move: a million takes some seconds, and more
            beside other work. What has to move sooner is granted meanwhile.
    """

    known_s: float = 1.0
    answer_s: float = 5.0
    arrivals_s: float = 1.0
    save_s: float = 15.0
    warm_s: float = 20.0


TIMES = PeerTimes()


class Peers:
    """Members of one service.

    Args:
        addresses: addresses of the members, by id.
        stub: gRPC stub of their service.
        dialer: opens channels.
        known_s: see `PeerTimes`.
    """

    def __init__(
        self,
        addresses: Callable[[], Mapping[str, str]],
        stub: Callable[[grpc.Channel], Any],
        dialer: Dialer = PLAIN,
        known_s: float = TIMES.known_s,
    ) -> None:
        self._known_s = known_s
        self._addresses = addresses
        self._stub = stub
        self._channels = Channels(dialer)
        self._known: Mapping[str, str] = {}
        self._looked_s = -math.inf

    def ask(self, method: str, requests: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Asks members in parallel; those that do not answer are left out."""
        self._find(requests)
        calls = {}
        for member, request in requests.items():
            if (known := self._known.get(member)) is not None:
                call = getattr(self._stub(self._channels.to(known)), method)
                calls[member] = call.future(request, timeout=timeout_s)
        answers = {}
        for member, call in calls.items():
            try:
                answers[member] = call.result()
            except grpc.RpcError as error:
                code = error.code().name if isinstance(error, grpc.Call) else type(error).__name__
                extra = event("peer_no_answer", member=member, method=method, code=code)
                logger.info("a process does not answer; the next round asks again", extra=extra)
        return answers

    def close(self) -> None:
        """Closes all connections."""
        self._channels.close()

    def _find(self, members: Iterable[str]) -> None:
        """Looks addresses up again if a member is unknown, and at intervals."""
        now_s = time.monotonic()
        is_recent = now_s - self._looked_s < self._known_s
        if is_recent and all(member in self._known for member in members):
            return
        self._known, self._looked_s = self._addresses(), now_s
        self._channels.keep(self._known.values())


class Routers:
    """The routers' ArrivalService; see `Peers`."""

    def __init__(
        self,
        addresses: Callable[[], Mapping[str, str]],
        dialer: Dialer = PLAIN,
        times: PeerTimes = TIMES,
    ) -> None:
        self._times = times
        self._peers = Peers(addresses, ArrivalServiceStub, dialer, times.known_s)

    def arrivals(self, members: Iterable[str]) -> dict[str, ArrivalReport]:
        """Counts of what routers have sent to leaves; those that do not answer are left out."""
        requests = dict.fromkeys(members, arrival_pb.TellArrivalsRequest())
        return _read(
            self._peers.ask("TellArrivals", requests, self._times.arrivals_s), read_arrivals
        )

    def close(self) -> None:
        """Closes all connections."""
        self._peers.close()


class Evaluators:
    """The evaluators' LoadService; see `Peers`."""

    def __init__(
        self,
        addresses: Callable[[], Mapping[str, str]],
        dialer: Dialer = PLAIN,
        times: PeerTimes = TIMES,
    ) -> None:
        self._times = times
        self._peers = Peers(addresses, LoadServiceStub, dialer, times.known_s)

    def slots(self, members: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Slots that evaluators own and are up to date with."""
        request = pb.TellLoadsRequest(slots_only=True)
        answers = self._peers.ask(
            "TellLoads", dict.fromkeys(members, request), self._times.answer_s
        )
        return {member: tuple(answer.slots) for member, answer in answers.items()}

    def loads(self, members: Iterable[str], *, ends_round: bool) -> dict[str, LoadReport]:
        """Counts of evaluators in the round; those that do not answer are left out.

        Args:
            members: the members to ask.
            ends_round: see `AskLoads`.
        """
        request = pb.TellLoadsRequest(ends_round=ends_round)
        answers = self._peers.ask(
            "TellLoads", dict.fromkeys(members, request), self._times.answer_s
        )
        return _read(answers, read_loads)

    def details(self, wanted: Mapping[str, list[int]], version: int) -> dict[int, LeafDetail]:
        """Details of leaves by id.

        Args:
            wanted: evaluator → ids of leaves in its slots.
            version: version of their map.
        """
        requests = {
            member: pb.TellDetailsRequest(map_version=version, leaves=leaves)
            for member, leaves in wanted.items()
        }
        found = _read(self._peers.ask("TellDetails", requests, self._times.answer_s), read_details)
        return {leaf: detail for each in found.values() for leaf, detail in each.items()}

    def samples(self, sizes: Mapping[str, tuple[int, int]]) -> list[SampleReport]:
        """Some objects and queries of evaluators.

        Args:
            sizes: evaluator → maximum numbers of objects and queries.
        """
        requests = {
            member: pb.TellSampleRequest(objects_max=objects, queries_max=queries)
            for member, (objects, queries) in sizes.items()
        }
        answers = self._peers.ask("TellSample", requests, self._times.answer_s)
        return list(_read(answers, read_sample).values())

    def save(self, slots: Mapping[str, list[int]]) -> None:
        """Lets evaluators write checkpoints of slots; without them a move only takes longer."""
        requests = {member: pb.SaveSlotsRequest(slots=own) for member, own in slots.items()}
        self._peers.ask("SaveSlots", requests, self._times.save_s)

    def warm(self, slots: Mapping[str, list[int]]) -> None:
        """Lets evaluators load past objects of slots that they will own; see `Warm`."""
        requests = {member: pb.WarmSlotsRequest(slots=own) for member, own in slots.items()}
        self._peers.ask("WarmSlots", requests, self._times.warm_s)

    def close(self) -> None:
        """Closes all connections."""
        self._peers.close()


def _read(answers: Mapping[str, Any], read: Callable[[Any], T]) -> dict[str, T]:
    found = {}
    for member, answer in answers.items():
        try:
            found[member] = read(answer)
        except InvalidArgument as error:
            extra = event("peer_unreadable", member=member, reason=str(error))
            logger.warning("the answer of a process cannot be read; it is left out", extra=extra)
    return found
