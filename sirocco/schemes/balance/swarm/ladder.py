"""SWARM's decision ladder: go on with what helps, turn where it does not (SWARM 4.3.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from sirocco.schemes.balance.base.view import Memory, Stage

# β: rounds after which a decision is turned whatever the ladder says. With "do nothing" and a
# throughput that rises and falls in turn, the ladder would never reach its left end.
REPEATS_MAX = 20

# By so much what comes differs from round to round without meaning anything: rounds of ten seconds
# are up to a look of the coordinator, a quarter of one, longer or shorter, …
NOISE_SHARE = 0.05

# … and counts of a quiet stream differ by chance; in standard deviations.
NOISE_DEVIATIONS = 3.0

# From the memory of the last round and what arrived in this one to where the pointer goes: 1 to
# the right, -1 to the left, 0 nowhere.
Step: TypeAlias = Callable[[Memory, float], int]


def figure_9(memory: Memory, recent_total: float) -> int:
    """The paper's step: right if more arrived than in the round before, else left."""
    return 1 if recent_total > memory.recent_total else -1


def beyond_noise(memory: Memory, recent_total: float) -> int:
    """Right or left where what arrives has changed; where it has not, "rebalance" stays.

    The paper offers as much as is borne, so that throughput says how good a decision was. Where
    less is offered, it is what the sources send, the same with any decision but for chance; by
    Figure 9 the coin that is thrown says "do nothing" in half of all rounds. So a difference within
    the noise is none, and none is no reason to stop: what is not worth its price is left out by
    each round's plan. "Do nothing" was to improve something: it goes left as in the paper.
    """
    before = memory.recent_total
    noise = max(NOISE_SHARE * before, NOISE_DEVIATIONS * (before + recent_total) ** 0.5)
    if abs(recent_total - before) <= noise:
        return 0 if memory.rebalances else -1
    return figure_9(memory, recent_total)


def climbed(
    memory: Memory, recent_total: float, repeats_max: int = REPEATS_MAX, step: Step = beyond_noise
) -> Memory:
    """Returns the memory after the decision of a round (Figure 9).

    At the left end the decision is turned and the pointer starts in the middle; likewise after β
    times.

    Args:
        memory: Of the last round.
        recent_total: R(S), what arrived in this one.
        repeats_max: β.
        step: Where the pointer goes.
    """
    if memory.recent_total < 0:
        # Nothing to compare with: the first round has the decision that it starts with.
        return replace(memory, recent_total=recent_total, repeats=memory.repeats + 1)
    stage = Stage(min(memory.stage + step(memory, recent_total), Stage.GREAT))
    if stage is Stage.FLIP or memory.repeats >= repeats_max:
        return replace(
            memory,
            stage=Stage.START,
            rebalances=not memory.rebalances,
            repeats=1,
            recent_total=recent_total,
        )
    return replace(memory, stage=stage, repeats=memory.repeats + 1, recent_total=recent_total)
