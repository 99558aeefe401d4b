"""Carries out the decisions of one search's gathering: questions, and responses for its client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from sirocco_api.v1 import search_service_pb2 as pb

from sirocco.codec.arrays import U8, pack
from sirocco.codec.search import put_question, write_answer, write_objects
from sirocco.internal_api.v1 import slot_search_service_pb2 as slot_pb
from sirocco.model.errors import DeadlineExceeded, PartialResult, SiroccoError
from sirocco.model.query import Query
from sirocco.protocol.search.collectors import collector_of
from sirocco.protocol.search.gather import Gather
from sirocco.protocol.search.gather_events import (
    Ask,
    CountTerms,
    Finish,
    GatherEffect,
    GatherEvent,
    PartArrived,
    RequestMarks,
    SendObjects,
    Stop,
    TakeMore,
)
from sirocco.protocol.search.leftovers import KnownLeftovers
from sirocco.protocol.search.limits import SearchLimits
from sirocco.protocol.search.messages import Part, Question
from sirocco.protocol.search.plan import SearchPlan
from sirocco.runtime.grpc.call_contexts import put_message
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.services.merger.evaluators import Evaluators, QuestionKey
from sirocco.services.merger.mark_requests import MarkRequests
from sirocco.telemetry.trace_context import TraceContext

# Parts of one question in flight: one at the evaluator, one in the stream, two here.
PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSearch:
    """One search request.

    Attributes:
        message: the query as received.
        query: the same as a value.
        warnings: about the query.
        now_ms: the moment that the answer describes.
        from_ms, upto_ms: arrivals that count.
        position_token: empty for none.
        begin_ms, end_ms: on the monotonic clock.
    """

    message: pb.SearchRequest
    query: Query
    warnings: tuple[str, ...]
    now_ms: int
    from_ms: int
    upto_ms: int
    begin_ms: int
    end_ms: int

    def question(self, ask: Ask) -> Question:
        """Returns the question for one evaluator."""
        return Question(
            query=self.query,
            slots=ask.slots,
            now_ms=self.now_ms,
            from_ms=self.from_ms,
            upto_ms=self.upto_ms,
            position_token=self.message.position_token,
            timeout_ms=max(1, self.end_ms - monotonic_ms()),
            radius_m=ask.radius_m,
            answers=ask.answers,
            # Behind a list the evaluator waits for what is wanted of the rest.
            parts=1 if ask.listed else PARTS,
            nearby=ask.nearby,
            takes_numbers=ask.takes_numbers,
            listed=ask.listed,
        )


@dataclass(frozen=True, slots=True)
class Asking:
    """What all searches of a merger share.

    Attributes:
        evaluators: are asked.
        mark_requests: asks routers for their positions.
        owner: slot → the evaluator that owns it, if any.
        leftovers: what is known of objects of former maps.
        limits: of searches.
    """

    evaluators: Evaluators
    mark_requests: MarkRequests
    owner: Callable[[int], str | None]
    leftovers: KnownLeftovers
    limits: SearchLimits


Took: TypeAlias = "Callable[[PartArrived], None]"


class SearchRun:
    """One search on its way; belongs to the gRPC loop.

    Args:
        search: the request.
        plan: which slots are asked.
        asking: what it shares with other searches.
        took: called with each part that arrives, or the error that ended a question.
        trace: its span, if it is traced.
    """

    def __init__(
        self,
        search: OneSearch,
        plan: SearchPlan,
        asking: Asking,
        took: Took,
        trace: TraceContext | None = None,
    ) -> None:
        limits = asking.limits
        self._search = search
        self._asking = asking
        self._took = took
        self._trace = trace
        self._gather = Gather(
            plan,
            collector_of(search.query, search.now_ms, limits.kept_bytes_max),
            search.begin_ms,
            search.end_ms,
            random.getrandbits(64),
            limits,
        )
        self._questions: dict[int, QuestionKey] = {}
        self._mark_request: asyncio.Task[None] | None = None
        self._rows = self._bytes = 0

    def close(self) -> None:
        """Stops everything in progress: the client may have gone."""
        for key in self._questions.values():
            self._asking.evaluators.stop(key)
        if self._mark_request is not None:
            self._mark_request.cancel()

    def deadline_ms(self) -> int:
        """Returns when the next `TimePassed` is needed at the latest."""
        return self._gather.deadline_ms()

    def is_large(self, event: GatherEvent) -> bool:
        """Whether a step adds up so much that it has to be taken outside the loop.

        Called once for each event, before its step.
        """
        if not isinstance(event, PartArrived) or not isinstance(event.part, Part):
            return False
        self._rows += len(event.part.objects) + len(event.part.terms)
        self._bytes += event.part.objects.bytes_total
        limits = self._asking.limits
        is_large = self._rows > limits.loop_rows_max or self._bytes > limits.loop_bytes_max
        return event.part.is_last and is_large

    def step(self, event: GatherEvent) -> list[GatherEffect]:
        """Steps the gathering; returns what to do."""
        return self._gather.step(event, self._asking.owner, monotonic_ms())

    def take_more(self, question: int) -> None:
        """Allows one more part of a question to be sent."""
        if (key := self._questions.get(question)) is not None:
            self._asking.evaluators.take_more(key)

    def carried_out(self, effect: GatherEffect) -> Iterator[pb.SearchResponse]:
        """Does what was decided; yields what is sent to the client. See `last` for the end."""
        match effect:
            case Ask():
                self._ask(effect)
            case Stop(number):
                self._asking.evaluators.stop(self._questions.pop(number))
            case TakeMore(number):
                self.take_more(number)
            case CountTerms(number, terms):
                wanted = b"" if terms is None else pack(terms, U8)
                self._asking.evaluators.take_more(self._questions[number], wanted)
            case SendObjects(objects, events, origin):
                yield from write_objects(objects, events, origin)
            case RequestMarks() if self._mark_request is None:
                token = self._search.message.position_token
                self._mark_request = asyncio.get_running_loop().create_task(
                    self._asking.mark_requests.request(token)
                )

    def last(self, finish: Finish, held: pb.SearchResponse | None) -> Iterator[pb.SearchResponse]:
        """Yields the last responses.

        Args:
            finish: the end.
            held: a response that is not sent yet; the end may be sent with it.
        """
        responses = [] if held is None else [held]
        if finish.error is not None and not _is_partial(finish.error):
            yield from responses
            return
        responses = [*responses, *write_answer(finish.answer)] or [pb.SearchResponse()]
        end = responses[-1].end
        end.now_ms = self._search.now_ms
        end.slots = self._gather.slots_total
        end.missing_slots.extend(finish.missing)
        end.warnings.extend(self._search.warnings)
        yield from responses

    def error_of(self, finish: Finish) -> SiroccoError | None:
        """Returns the error with which the search ends; None if its client gets what it wants."""
        is_allowed = (
            finish.error is not None
            and _is_partial(finish.error)
            and self._search.message.allow_partial
        )
        return None if is_allowed else finish.error

    def _ask(self, ask: Ask) -> None:
        leftovers = self._asking.leftovers
        message = slot_pb.SlotQuestion()
        question = self._search.question(ask)
        wanted = leftovers.wanted(ask.slots, monotonic_ms())
        if wanted:
            question = replace(question, leftovers_of=wanted)
        put_question(message, question, self._search.message.query)
        if self._trace is not None:
            put_message(message.trace, self._trace)

        def sink(part: Part | SiroccoError) -> None:
            if isinstance(part, Part) and part.leftovers:
                leftovers.learn(part.leftovers, monotonic_ms())
            self._took(PartArrived(ask.number, part))

        self._questions[ask.number] = self._asking.evaluators.ask(ask.member, message, sink)


def _is_partial(error: SiroccoError) -> bool:
    return isinstance(error, PartialResult | DeadlineExceeded)
