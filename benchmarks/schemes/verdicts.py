"""Judges a claim by a measured ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.schemes.figures import Figures, MissingFigureError

REPRODUCED = "reproduced"
DIRECTION = "direction only"
SAME = "no difference"
REFUTED = "not reproduced"
UNKNOWN = "not measured"

# CPU times of a busy machine differ by this much from pass to pass; less is no difference.
NOISE = 0.1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a claim.

    Attributes:
        state: One of those above.
        figure: The measurement, in words and numbers.
    """

    state: str
    figure: str


Judge: TypeAlias = Callable[[Figures], Verdict]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper, or of our design.

    Attributes:
        source: Paper and section.
        says: The claim with its factor.
        judge: Decides by the figures.
        why_not: The reason if it is not reproduced: shown only then.
    """

    source: str
    says: str
    judge: Judge
    why_not: str = ""

    def verdict(self, figures: Figures) -> Verdict:
        """Judges; a missing measurement is no failure."""
        try:
            return self.judge(figures)
        except MissingFigureError as error:
            return Verdict(UNKNOWN, str(error))


def graded(value: float, factor: float) -> str:
    """Returns the state of a claim that something is `factor` times better.

    Args:
        value: The measured ratio.
        factor: The claimed one, 1 or more.
    """
    # Of a gain of some per cent, noise may take a fifth, not all.
    enough = 1 + 0.8 * (factor - 1) if factor > 1 else 1 - NOISE
    if value >= enough:
        return REPRODUCED
    return DIRECTION if value > 1 + NOISE else REFUTED


def best_of_all(gains: Sequence[float]) -> str:
    """Returns the state of a claim that something is the best of several.

    Args:
        gains: How many times better it is than each of the others.
    """
    if min(gains) < 1 - NOISE:
        return DIRECTION if max(gains) > 1 + NOISE else REFUTED
    return REPRODUCED if max(gains) > 1 + NOISE else SAME


def held(holds: bool, partly: bool = False) -> str:
    """Returns the state of a claim that holds or not."""
    return REPRODUCED if holds else DIRECTION if partly else REFUTED
