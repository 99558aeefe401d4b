"""Events that the gathering of a search takes, and effects that it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import SiroccoError
from sirocco.model.objects import ObjectColumns
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.search.messages import AnswerRows, Part


@dataclass(frozen=True, slots=True)
class Begin:
    """Starts the search."""


@dataclass(frozen=True, slots=True)
class PartArrived:
    """A part of the answer to an `Ask`, or the error that ended it."""

    ask: int
    part: Part | SiroccoError


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Asks an evaluator.

    Attributes:
        number: of the question, never used again within the search.
        member: the evaluator.
        slots: ascending.
        radius_m: knn: no answer is farther away; None when nothing is known.
        answers: into how many answers the search is split at most.
        nearby: knn: further slots of the evaluator, ascending, that it may answer for.
        takes_numbers: terms: whether sums may use numbers under the evaluators' key.
        listed: terms: how many of the most frequent will do at first; 0 for all.
    """

    number: int
    member: str
    slots: tuple[int, ...]
    radius_m: float | None
    answers: int
    nearby: tuple[int, ...] = ()
    takes_numbers: bool = True
    listed: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """Stops waiting for the answer to an `Ask`."""

    ask: int


@dataclass(frozen=True, slots=True)
class TakeMore:
    """Allows one more part, as one has been processed."""

    ask: int


@dataclass(frozen=True, slots=True, eq=False)
class CountTerms:
    """Asks for the rest of an answer that began with a list of terms.

    Attributes:
        ask: the question.
        terms: u8[m], whose counts are wanted; None for all terms.
    """

    ask: int
    terms: NDArray[np.uint64] | None


@dataclass(frozen=True, slots=True)
class SendObjects:
    """Sends objects of a range answer to the client now.

    Attributes:
        objects: n rows.
        events: n rows.
        origin: of the part, if these are all of its rows: it can be passed on as it arrived.
    """

    objects: ObjectColumns
    events: EventColumns
    origin: object = None


@dataclass(frozen=True, slots=True)
class RequestMarks:
    """A flush request: some slot waits for the search's position, so routers report theirs."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Ends the search.

    Attributes:
        answer: what is sent now; nothing for a range query.
        error: why it is not complete, if it is not.
        missing: slots that gave no answer, ascending.
    """

    answer: AnswerRows
    error: SiroccoError | None
    missing: tuple[int, ...]


GatherEvent: TypeAlias = Begin | PartArrived | TimePassed
GatherEffect: TypeAlias = Ask | Stop | TakeMore | CountTerms | SendObjects | RequestMarks | Finish
