"""The gathering of one search: questions, answers, retries, and when to give up.

    wanted ──Ask──▶ asked ──last of its answer──▶ done
       ▲              │
       └──moved, broken, owner changed; after a pause──┘

A slot's answer counts once, from whichever evaluator it arrives first. The parts of a range answer
are passed on as they arrive. If a slot is asked again in the middle of its answer, rows that were
passed on are recognised by event key. All other answers count whole or not at all. Only objects of
slots answered for in addition may arrive twice; they are recognised in the same way.

The k most frequent terms are first asked for as lists (`term_lists`). When each slot has answered
or is in a list, the counts that are missing are asked for. A question that fails meanwhile is asked
again, for a list. If the lists do not decide, or half of the time is over, all terms are counted.

An evaluator reports by which map its slots were filled. If that map is newer than the merger's,
which may have been suspended, objects can be anywhere: all slots are asked.

Slots without an answer at the deadline are named: the answer is then explicitly partial
(docs/explanation/guarantees.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    PartialResult,
    ResourceExhausted,
    SiroccoError,
    Unavailable,
)
from sirocco.model.query import TermsQuery
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.search.collectors import Collector, TermsCollector
from sirocco.protocol.search.gather_events import (
    Ask,
    Begin,
    CountTerms,
    Finish,
    GatherEffect,
    GatherEvent,
    PartArrived,
    RequestMarks,
    SendObjects,
    Stop,
    TakeMore,
    TimePassed,
)
from sirocco.protocol.search.leftovers import Former
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import DONE, MORE, MOVED, NO_ANSWER, Part
from sirocco.protocol.search.plan import SearchPlan
from sirocco.protocol.search.term_lists import TermList, candidates, lacking, listed_for

Owners: TypeAlias = "Callable[[int], str | None]"


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One slot of the search.

    Attributes:
        due_ms: when it may be asked.
        tries: number of failed questions.
        why: the reason of the last failure; empty while an answer is under way.
        passed_on: event keys of the rows that were passed on of an unfinished answer, with the
            number of the question that they answered.
    """

    due_ms: int
    ask: int | None = None
    is_done: bool = False
    is_lost: bool = False
    tries: int = 0
    why: str = ""
    passed_on: list[tuple[int, EventColumns]] = field(default_factory=list)
    passed_on_rows: int = 0


@dataclass(slots=True)
class _Question:
    member: str
    slots: set[int]
    nearby: tuple[int, ...]
    parts: list[Part] = field(default_factory=list)


class Gather:
    """`step(event, owners, now_ms) -> effects`; for any clock that does not go back.

    Args:
        plan: which slots to ask.
        collector: adds up answers; None when their parts are passed on as they arrive.
        begin_ms, deadline_ms: by that clock.
        seed: of the jitter.
        limits: of searches.
    """

    def __init__(
        self,
        plan: SearchPlan,
        collector: Collector | None,
        begin_ms: int,
        deadline_ms: int,
        seed: int,
        limits: SearchLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self.is_finished = False
        self._plan = plan
        self._collector = collector
        self._begin_ms = begin_ms
        self._end_ms = deadline_ms
        self._seed = seed
        self._slots: dict[int, _Slot] = {}
        self._questions: dict[int, _Question] = {}
        self._questions_total = 0
        self._radius_m: float | None = None
        self._is_first_phase = plan.has_rest
        self._is_catching_up = False
        # Terms query: the numbering of terms in the answers so far, None before the first.
        self._numbering: int | None = None
        self._takes_numbers = True
        # How many terms evaluators list at first; 0 when all are wanted.
        self._listed = 0
        if isinstance(plan.query, TermsQuery):
            self._listed = listed_for(plan.query.k, limits)
        self._lists: dict[int, TermList] = {}
        self._looked_ms = begin_ms

    @property
    def slots_total(self) -> int:
        """Returns how many slots could hold answers, as far as is known."""
        return len(self._slots)

    def step(self, event: GatherEvent, owners: Owners, now_ms: int) -> list[GatherEffect]:
        """Takes an event; returns what to do, in order.

        Args:
            event: what happened.
            owners: slot → the evaluator that owns it by the newest view, if any.
            now_ms: the time.
        """
        if self.is_finished:
            return []
        effects: list[GatherEffect] = []
        match event:
            case Begin():
                self._require(self._plan.first, now_ms)
            case PartArrived(number, part):
                effects += self._part_arrived(number, part, now_ms)
            case TimePassed():
                effects += self._look(owners, now_ms)
        if self.is_finished:
            return effects
        if self._is_first_phase:
            self._second_phase(now_ms)
        if self._listed:
            effects += self._decide_terms(now_ms)
            if self.is_finished:
                return effects
        if not self._is_first_phase and all(s.is_done for s in self._slots.values()):
            return [*effects, *self._finish(None)]
        is_hopeless = all(slot.is_done or slot.is_lost for slot in self._slots.values())
        if now_ms >= self._end_ms or is_hopeless:
            return [*effects, *self._finish_late()]
        return [*effects, *self._ask(owners, now_ms)]

    def deadline_ms(self) -> int:
        """Returns when the next `TimePassed` is needed at the latest."""
        due_ms = [slot.due_ms for slot in self._slots.values() if self._is_wanted(slot)]
        if self._questions:
            due_ms.append(self._looked_ms + self._limits.look_ms)
        if self._is_first_phase or self._listed:
            due_ms.append(self._patience_ms)
        return min(self._end_ms, *due_ms) if due_ms else self._end_ms

    # --- asking

    @staticmethod
    def _is_wanted(slot: _Slot) -> bool:
        return slot.ask is None and not slot.is_done and not slot.is_lost

    def _require(self, slots: Iterable[int], now_ms: int) -> None:
        for slot in slots:
            self._slots.setdefault(slot, _Slot(due_ms=now_ms))

    def _ask(self, owners: Owners, now_ms: int) -> list[GatherEffect]:
        by_member: dict[str, list[int]] = {}
        for number, slot in self._slots.items():
            if not self._is_wanted(slot) or slot.due_ms > now_ms:
                continue
            member = owners(number)
            if member is None:
                self._retry(number, "has no owner", now_ms)
            else:
                by_member.setdefault(member, []).append(number)
        effects: list[GatherEffect] = []
        for member, numbers in by_member.items():
            self._questions_total += 1
            for number in numbers:
                self._slots[number].ask = self._questions_total
            nearby = self._nearby(member, owners)
            self._questions[self._questions_total] = _Question(member, set(numbers), nearby)
            # Each answer is about one slot at least.
            answers = 1 + len(self._slots) - len(numbers)
            slots = tuple(sorted(numbers))
            effects.append(
                Ask(
                    number=self._questions_total,
                    member=member,
                    slots=slots,
                    radius_m=self._radius_m,
                    answers=answers,
                    nearby=nearby,
                    takes_numbers=self._takes_numbers,
                    listed=self._listed if answers > 1 else 0,
                )
            )
        return effects

    def _nearby(self, member: str, owners: Owners) -> tuple[int, ...]:
        """Returns what else an evaluator may answer for in the first phase, ascending."""
        if not (self._is_first_phase and self._plan.asks_nearby):
            return ()
        others = (n for n in range(self._plan.routing.slots) if n not in self._slots)
        return tuple(islice((n for n in others if owners(n) == member), self._limits.nearby_max))

    def _retry(self, number: int, why: str, now_ms: int, pause_ms: int = 0) -> None:
        """Schedules another question to a slot, after a pause that grows with its failures."""
        slot = self._slots[number]
        slot.ask, slot.why = None, why
        if slot.passed_on_rows > self._limits.repeatable_rows_max:
            slot.is_lost = True
            return
        grown_ms = min(self._limits.retry_ms_min << min(slot.tries, 8), self._limits.retry_ms_max)
        slot.tries += 1
        jitter = _mixed(self._seed, number, slot.tries)
        # A pause that an evaluator asks for is a minimum, and many searches get the same one.
        slot.due_ms = now_ms + max(int(grown_ms * (0.5 + jitter)), int(pause_ms * (1 + jitter / 2)))

    def _drop(self, ask: int, why: str, now_ms: int, pause_ms: int = 0) -> None:
        """Forgets a question; its unfinished slots are asked again."""
        if ask in self._lists and not self._lists[ask].has_ended:
            del self._lists[ask]
        for number in self._questions.pop(ask).slots:
            if self._slots[number].ask == ask:
                self._retry(number, why, now_ms, pause_ms)

    def _look(self, owners: Owners, now_ms: int) -> list[GatherEffect]:
        """Stops asking evaluators that no longer own the slots they were asked for."""
        if now_ms - self._looked_ms < self._limits.look_ms:
            return []
        self._looked_ms = now_ms
        effects: list[GatherEffect] = []
        for ask, question in list(self._questions.items()):
            if any(owners(number) not in (None, question.member) for number in question.slots):
                self._drop(ask, "has moved", now_ms)
                effects.append(Stop(ask))
        return effects

    # --- the second phase of knn

    @property
    def _patience_ms(self) -> int:
        """When the others are asked although the first have not answered."""
        return self._begin_ms + (self._end_ms - self._begin_ms) // 2

    def _second_phase(self, now_ms: int) -> None:
        is_answered = all(slot.is_done for slot in self._slots.values())
        if not is_answered and now_ms < self._patience_ms:
            return
        self._is_first_phase = False
        if is_answered and len(self._slots) == self._plan.routing.slots:
            return
        assert self._collector is not None
        # Any result bounds the answer, even if the first phase is not complete.
        self._radius_m = self._collector.bound_m()
        self._require(self._plan.rest(self._radius_m), now_ms)

    # --- answers

    def _part_arrived(self, ask: int, part: Part | SiroccoError, now_ms: int) -> list[GatherEffect]:
        question = self._questions.get(ask)
        if question is None:
            # The question has been dropped since.
            return []
        if isinstance(part, SiroccoError):
            return self._failed(ask, part, now_ms)
        if not question.slots.union(question.nearby).issuperset(part.slots.tolist()):
            return self._failed(ask, Internal(f"{question.member} spoke of other slots"), now_ms)
        if part.map_version > self._plan.routing.version and not self._plan.is_everywhere:
            self._plan = replace(self._plan, former=Former(is_everywhere=True))
            if self._collector is not None:
                return self._restart(now_ms)
            self._require(range(self._plan.routing.slots), now_ms)
        effects: list[GatherEffect] = []
        if part.is_waiting and not self._is_catching_up:
            self._is_catching_up = True
            effects.append(RequestMarks())
        if self._collector is None:
            effects += self._send_objects(ask, part, now_ms)
        else:
            question.parts.append(replace(part, origin=None))
        moved = part.slots_in(MOVED)
        # Excludes slots that another evaluator was asked for meanwhile, and nearby ones.
        for number in sorted(question.slots.intersection(moved)):
            if self._slots[number].ask == ask:
                self._retry(number, "has moved", now_ms)
        if not part.is_last and part.rest is None:
            return [*effects, *([] if part.is_waiting else [TakeMore(ask)])]
        if self._collector is not None:
            return [*effects, *self._collected(ask, question, part, now_ms)]
        self._drop(ask, "was left out by its evaluator", now_ms)
        return effects

    def _collected(
        self, ask: int, question: _Question, part: Part, now_ms: int
    ) -> list[GatherEffect]:
        """Takes an answer that counts as a whole, or a list of its terms."""
        assert self._collector is not None
        if not self._can_add(question.parts):
            self._takes_numbers = False
            return self._restart(now_ms)
        if not part.is_last:
            return self._list_arrived(ask, question, part.rest or 0)
        done = part.slots_in(DONE)
        if self._listed:
            known = self._lists.setdefault(ask, TermList(question.parts, 0))
            known.slots, known.has_ended = tuple(done), True
        else:
            try:
                self._collector.add(question.parts)
            except InvalidArgument as error:
                return self._finish(error)
        self._close(done, now_ms)
        self._drop(ask, "was left out by its evaluator", now_ms)
        return []

    def _can_add(self, parts: list[Part]) -> bool:
        """Whether terms are numbered as in the answers before; evaluators may have two keys."""
        for numbering in {part.terms.numbering for part in parts if len(part.terms)}:
            if self._numbering is None:
                self._numbering = numbering
            if numbering != self._numbering:
                return False
        return True

    def _restart(self, now_ms: int) -> list[GatherEffect]:
        """Asks all slots: the map has changed, and this merger had not read of it.

        What evaluators leave out of a list depends on how many are asked, so earlier answers do not
        count.
        """
        assert self._collector is not None
        stops: list[GatherEffect] = [Stop(ask) for ask in self._questions]
        self._questions.clear()
        self._slots.clear()
        self._collector.clear()
        self._numbering = None
        self._lists.clear()
        self._listed = 0
        # Those answers gave the bound: if one of them is missing now, the bound does not hold.
        self._radius_m = None
        self._is_first_phase = False
        self._require(range(self._plan.routing.slots), now_ms)
        return stops

    # --- lists of terms

    def _list_arrived(self, ask: int, question: _Question, rest: int) -> list[GatherEffect]:
        if self._listed:
            self._lists[ask] = TermList(question.parts, rest)
            return []
        # All terms are wanted by now.
        question.parts.clear()
        return [CountTerms(ask, None)]

    def _decide_terms(self, now_ms: int) -> list[GatherEffect]:
        """Adds up lists once they decide; asks for what is missing."""
        if now_ms >= self._patience_ms:
            return self._want_all_terms(now_ms)
        if not all(slot.is_done or slot.ask in self._lists for slot in self._slots.values()):
            return []
        assert isinstance(self._plan.query, TermsQuery)
        assert isinstance(self._collector, TermsCollector)
        terms = candidates(list(self._lists.values()), self._plan.query.k)
        if terms is None:
            return self._want_all_terms(now_ms)
        effects: list[GatherEffect] = []
        is_open = False
        for ask, one in self._lists.items():
            missing = lacking(one, terms)
            if not len(missing):
                continue
            if one.has_ended:
                return self._want_all_terms(now_ms)
            is_open = True
            if not one.is_asked:
                one.is_asked = True
                effects.append(CountTerms(ask, missing))
        if is_open:
            return effects
        for ask, one in self._lists.items():
            try:
                self._collector.add(one.parts, terms)
            except InvalidArgument as error:
                return self._finish(error)
            if not one.has_ended:
                effects.append(Stop(ask))
                question = self._questions.pop(ask)
                self._close([n for n in question.slots if self._slots[n].ask == ask], now_ms)
        self._lists.clear()
        return effects

    def _want_all_terms(self, now_ms: int) -> list[GatherEffect]:
        """Asks for all terms: the lists do not decide, or take too long."""
        assert self._collector is not None
        self._listed = 0
        effects: list[GatherEffect] = []
        lists, self._lists = self._lists, {}
        for ask, one in lists.items():
            if one.has_ended and not one.rest:
                try:
                    self._collector.add(one.parts)
                except InvalidArgument as error:
                    return self._finish(error)
            elif not one.has_ended and not one.is_asked:
                self._questions[ask].parts.clear()
                effects.append(CountTerms(ask, None))
            else:
                slots = one.slots
                if not one.has_ended:
                    effects.append(Stop(ask))
                    asked = self._questions.pop(ask).slots
                    slots = tuple(n for n in asked if self._slots[n].ask == ask)
                for number in slots:
                    self._slots[number] = _Slot(due_ms=now_ms)
        return effects

    def _failed(self, ask: int, error: SiroccoError, now_ms: int) -> list[GatherEffect]:
        if not error.retryable:
            return self._finish(error)
        wanted_ms = error.retry_after_ms if isinstance(error, ResourceExhausted) else None
        self._drop(ask, error.message, now_ms, wanted_ms or 0)
        return []

    def _close(self, numbers: Iterable[int], now_ms: int) -> None:
        for number in numbers:
            # Nothing was known of nearby slots so far.
            slot = self._slots.setdefault(number, _Slot(due_ms=now_ms))
            slot.is_done, slot.ask, slot.passed_on = True, None, []

    def _send_objects(self, ask: int, part: Part, now_ms: int) -> list[GatherEffect]:
        keep: NDArray[np.bool_] | None = None
        begin = 0
        for number, state, end in zip(
            part.slots.tolist(), part.states.tolist(), part.row_ends.tolist(), strict=True
        ):
            slot = self._slots[number]
            # One answer has each row once. A repeated one is sent without rows the client has.
            passed_on = [events for of, events in slot.passed_on if of != ask]
            if passed_on and end > begin:
                keep = np.ones(len(part.objects), np.bool_) if keep is None else keep
                keep[begin:end] = _unknown(part.events.slice(begin, end), passed_on)
            if state == DONE:
                self._close([number], now_ms)
            elif state == MORE and slot.passed_on_rows <= self._limits.repeatable_rows_max:
                slot.passed_on.append((ask, part.events.slice(begin, end)))
                slot.passed_on_rows += end - begin
            begin = end
        if not len(part.objects):
            return []
        if keep is None:
            return [SendObjects(part.objects, part.events, part.origin)]
        rows = np.flatnonzero(keep)
        return [SendObjects(part.objects.take(rows), part.events.take(rows))] if len(rows) else []

    # --- the end

    def _finish(self, error: SiroccoError | None) -> list[GatherEffect]:
        self.is_finished = True
        missing = tuple(sorted(n for n, slot in self._slots.items() if not slot.is_done))
        collected = NO_ANSWER if self._collector is None else self._collector.answer()
        stops: list[GatherEffect] = [Stop(ask) for ask in self._questions]
        self._questions.clear()
        return [*stops, Finish(collected, error, missing)]

    def _finish_late(self) -> list[GatherEffect]:
        missing = {n: slot for n, slot in sorted(self._slots.items()) if not slot.is_done}
        waited_ms = self._end_ms - self._begin_ms
        numbers = ", ".join(map(str, missing))
        reasons = sorted({slot.why for slot in missing.values() if slot.why})
        if len(missing) == len(self._slots) and not reasons:
            # No slot is known to be unavailable: the time was too short.
            why = " (they had not reached the position token)" if self._is_catching_up else ""
            return self._finish(
                DeadlineExceeded(f"slots {numbers} gave no answer within {waited_ms} ms{why}")
            )
        why = f" ({'; '.join(reasons)})" if reasons else ""
        return self._finish(
            PartialResult(
                f"slots {numbers} gave no answer within {waited_ms} ms{why}",
                missing_slots=tuple(missing),
            )
        )


def gone(member: str) -> SiroccoError:
    """Returns the error for an evaluator that cannot be reached."""
    return Unavailable(f"evaluator {member} cannot be reached")


def _unknown(events: EventColumns, passed_on: list[EventColumns]) -> NDArray[np.bool_]:
    """bool[n], which events are not among those that were passed on."""
    known = {
        key
        for part in passed_on
        for key in zip(part.sessions.tolist(), part.numbers.tolist(), strict=True)
    }
    keys = zip(events.sessions.tolist(), events.numbers.tolist(), strict=True)
    return np.array([key not in known for key in keys], np.bool_)


def _mixed(seed: int, slot: int, tries: int) -> float:
    """Returns a number in [0, 1) that differs between searches, slots and tries."""
    mixed = (seed ^ (slot << 32) ^ tries) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return (mixed >> 32) / (1 << 32)
