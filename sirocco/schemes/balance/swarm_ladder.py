"""SWARM's decision ladder: go on with what helps, turn where it does not (SWARM 4.3.1)."""

from __future__ import annotations

from dataclasses import replace

from sirocco.schemes.balance.view import Memory, Stage

# β: rounds after which a decision is turned whatever the ladder says. With "do nothing" and a
# throughput that rises and falls in turn, the ladder would never reach its left end.
REPEATS_MAX = 20


def climbed(memory: Memory, recent_total: float, repeats_max: int = REPEATS_MAX) -> Memory:
    """Returns the memory after the decision of a round (Figure 9).

    The pointer goes right if more arrived than in the round before, else left. At the left end
    the decision is turned and the pointer starts in the middle; likewise after β times.

    Args:
        memory: Of the last round.
        recent_total: R(S), what arrived in this one.
        repeats_max: β.
    """
    if memory.recent_total < 0:
        # Nothing to compare with: the first round has the decision that it starts with.
        return replace(memory, recent_total=recent_total, repeats=memory.repeats + 1)
    step = 1 if recent_total > memory.recent_total else -1
    stage = Stage(min(memory.stage + step, Stage.GREAT))
    if stage is Stage.FLIP or memory.repeats >= repeats_max:
        return replace(
            memory,
            stage=Stage.START,
            rebalances=not memory.rebalances,
            repeats=1,
            recent_total=recent_total,
        )
    return replace(memory, stage=stage, repeats=memory.repeats + 1, recent_total=recent_total)
