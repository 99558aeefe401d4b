"""Assigns Kafka partitions to members by count, and slots to evaluators by load.

Both are pure functions of the present owners and the living members; neither moves anything without
need. Uneven load among members that all own something is the task of the balancers.
"""

from __future__ import annotations

from collections.abc import Sequence

# Weight of an idle slot, as a share of the mean. Queries, memory and marks have to be spread over
# evaluators too, and an idle slot may get load later.
IDLE_SHARE = 0.05


def balanced(owners: dict[int, str], members: tuple[str, ...]) -> dict[int, str]:
    """Spreads Kafka partitions over members: counts differ by one at most, few owners change.

    Args:
        owners: Kafka partition → present owner, alive or not.
        members: the living members; at least one.
    """
    held: dict[str, list[int]] = {member: [] for member in members}
    homeless: list[int] = []
    for partition, owner in sorted(owners.items()):
        held.get(owner, homeless).append(partition)
    least, extra = divmod(len(owners), len(members))
    # The members that own most keep the larger shares: nothing moves without need.
    by_load = sorted(members, key=lambda member: (-len(held[member]), member))
    share = {member: least + (place < extra) for place, member in enumerate(by_load)}
    for member in by_load:
        while len(held[member]) > share[member]:
            homeless.append(held[member].pop())
    for member in reversed(by_load):
        while len(held[member]) < share[member]:
            held[member].append(homeless.pop())
    return {partition: member for member, each in held.items() for partition in each}


def settled(
    owners: dict[int, str], members: tuple[str, ...], weights: Sequence[float]
) -> dict[int, str]:
    """Assigns slots without a living owner, and gives evaluators without slots a share of the load.

    Args:
        owners: slot → present owner, alive or not; "" for none.
        members: the living evaluators; at least one.
        weights: load of each slot, any unit; ignored if its length is not that of `owners`.
    """
    weight = _weights(owners, weights)
    held: dict[str, list[int]] = {member: [] for member in members}
    homeless: list[int] = []
    for slot, owner in sorted(owners.items()):
        held.get(owner, homeless).append(slot)
    newcomers = [member for member in members if not held[member]]
    load = {member: sum(weight[slot] for slot in each) for member, each in held.items()}
    for slot in sorted(homeless, key=lambda slot: (-weight[slot], slot)):
        least = min(members, key=lambda member: (load[member], len(held[member]), member))
        held[least].append(slot)
        load[least] += weight[slot]
    for newcomer in newcomers:
        _welcome(newcomer, held, load, weight)
    return {slot: member for member, each in held.items() for slot in each}


def _weights(owners: dict[int, str], weights: Sequence[float]) -> dict[int, float]:
    total = sum(weights)
    if len(weights) != len(owners) or total <= 0:
        return dict.fromkeys(owners, 1.0)
    least = IDLE_SHARE * total / len(owners)
    return {slot: weights[slot] + least for slot in owners}


def _welcome(
    newcomer: str,
    held: dict[str, list[int]],
    load: dict[str, float],
    weight: dict[int, float],
) -> None:
    """Moves slots to a new evaluator, each from the most loaded one that this relieves."""
    mean = sum(load.values()) / len(held)
    while load[newcomer] < mean:
        donors = sorted(held, key=lambda member: (-load[member], member))
        move = next(
            (found for donor in donors if (found := _gift(donor, newcomer, held, load, weight))),
            None,
        )
        if move is None:
            return
        donor, slot = move
        held[donor].remove(slot)
        held[newcomer].append(slot)
        load[donor] -= weight[slot]
        load[newcomer] += weight[slot]


def _gift(
    donor: str,
    newcomer: str,
    held: dict[str, list[int]],
    load: dict[str, float],
    weight: dict[int, float],
) -> tuple[str, int] | None:
    """Returns the heaviest slot of a donor that leaves the newcomer the lighter of the two."""
    if donor == newcomer or len(held[donor]) < 2:
        return None
    room = load[donor] - load[newcomer]
    # Slots of equal weight must not move because of rounding alone.
    fitting = [
        slot for slot in held[donor] if weight[slot] <= room * (1 - 1e-9) and weight[slot] > 0
    ]
    if not fitting:
        return None
    # The slot that brings both loads closest; of equal ones the one granted last.
    best = max(fitting, key=lambda slot: (-abs(room / 2 - weight[slot]), slot))
    return donor, best
