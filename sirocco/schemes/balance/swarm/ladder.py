"""SWARM's decision ladder: continue if a decision helps, otherwise reverse it (SWARM 4.3.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from sirocco.schemes.balance.base.view import Memory, Stage

# β: rounds after which a decision is reversed in any case. With "do nothing" and an alternating
# throughput, the ladder would never reach its left end.
REPEATS_MAX = 20

# Differences of arrivals between rounds up to this share are noise: rounds of ten seconds vary by
# up to one look of the coordinator, …
NOISE_SHARE = 0.05

# … and counts of a quiet stream vary by chance; in standard deviations.
NOISE_DEVIATIONS = 3.0

# From the memory of the last round and the arrivals of this one to the pointer's step: 1 to the
# right, -1 to the left, 0 none.
Step: TypeAlias = Callable[[Memory, float], int]


def figure_9(memory: Memory, recent_total: float) -> int:
    """The paper's step: right if more arrived than in the round before, else left."""
    return 1 if recent_total > memory.recent_total else -1


def beyond_noise(memory: Memory, recent_total: float) -> int:
    """Right or left if arrivals have changed; otherwise "rebalance" stays.

    In the paper the load is the maximum that the system can process, so that throughput measures a
    decision. With a lower load, throughput equals the sources' rate whatever the decision, except
    for noise; Figure 9 would then choose "do nothing" at random in half of all rounds. So a
    difference within the noise counts as none, and is no reason to stop: each round's plan omits
    changes that do not pay. "Do nothing" was meant to improve something, so it moves left as in the
    paper.
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

    At the left end the decision is reversed and the pointer starts in the middle; likewise after β
    times.

    Args:
        memory: Memory of the last round.
        recent_total: R(S), the arrivals of this round.
        repeats_max: β.
        step: Returns the pointer's step.
    """
    if memory.recent_total < 0:
        # Without an earlier round to compare, the first round keeps its initial decision.
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
