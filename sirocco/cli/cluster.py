"""`sirocco cluster`: members, owners, unowned partitions, and the map in force."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.measure import Measurement
from rich.table import Column, Table
from sirocco_client import ClusterDescription

from sirocco.cli.balance import show
from sirocco.cli.terminal.remote import add_connection, connect
from sirocco.cli.terminal.status import ExitCode
from sirocco.cli.terminal.terminal import console as console_of
from sirocco.cli.terminal.terminal import print_json

if TYPE_CHECKING:
    from rich.console import Console

# For other processes, not for users: how long each has reached the log without a break.
_NOT_SHOWN = frozenset({"log_heard_s"})


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "cluster",
        description="Shows the processes of a cluster, what each owns, slots that nobody owns, and "
        "the map in force.",
    )
    parser.add_argument("--slots", action="store_true", help="also the numbers of the owned slots")
    parser.add_argument("--leaves", action="store_true", help="also the leaves of the map")
    parser.add_argument("--loads", action="store_true", help="also loads, as `balance` shows them")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    with connect(args) as client:
        found = client.describe(leaves=args.leaves)
        balance = client.balance() if args.loads else None
    if args.json:
        members = asdict(found) | {"unowned_slots": unowned_slots(found)}
        if balance is not None:
            members["balance"] = asdict(balance)
        print_json(members)
    else:
        _print(found, _console(), with_slots=args.slots)
        if balance is not None:
            show(balance, _console())
    return ExitCode.OK


def unowned_slots(found: ClusterDescription) -> list[int]:
    """Returns the slots without a living owner."""
    if _is_partial(found):
        return []
    present = {member.id for member in found.members}
    owned = {slot for slot, owner in _owners(found).items() if owner in present}
    return [slot for slot in range(found.slot_count) if slot not in owned]


def _is_partial(found: ClusterDescription) -> bool:
    """Whether the token is a tenant's: tenants see neither loads nor owners."""
    return not found.ownerships and not any(member.loads for member in found.members)


def _owners(found: ClusterDescription) -> dict[int, str]:
    return {one.partition: one.member for one in found.ownerships if one.topic == "slots"}


def _print(found: ClusterDescription, console: Console, *, with_slots: bool) -> None:
    console.print(
        f"cluster {found.cluster}: map version {found.map_version} ({found.scheme}), "
        f"{found.leaf_count} leaves in {found.slot_count} slots, "
        f"leader {found.leader or 'nobody'}"
    )
    names = (Column(name, no_wrap=True) for name in ("member", "address", "http"))
    loads = Column("loads", min_width=len("matched_objects"))
    members = Table(*names, "owns", loads, box=None, pad_edge=False)
    for member in found.members:
        owned: dict[str, int] = {}
        for ownership in found.ownerships:
            if ownership.member == member.id:
                owned[ownership.topic] = owned.get(ownership.topic, 0) + 1
        members.add_row(
            member.id,
            member.address,
            member.http_address,
            ", ".join(f"{count} {topic}" for topic, count in sorted(owned.items())),
            ", ".join(
                f"{name} {value:,.0f}"
                for name, value in sorted(member.loads.items())
                if name not in _NOT_SHOWN
            ),
        )
    # Names and addresses are copied into other commands: a narrow terminal breaks the line.
    least = Measurement.get(console, console.options.update(max_width=1_000), members).minimum
    members.width = least if least > console.width else None
    console.print(members, crop=False)
    _print_slots(found, console, with_slots=with_slots)
    if not found.leaves:
        return
    leaves = Table("leaf", "slot", "west", "south", "east", "north", box=None, pad_edge=False)
    for leaf in found.leaves:
        sides = (f"{side:.4f}" for side in (leaf.west, leaf.south, leaf.east, leaf.north))
        leaves.add_row(str(leaf.id), str(leaf.slot), *sides)
    console.print(leaves)


def _print_slots(found: ClusterDescription, console: Console, *, with_slots: bool) -> None:
    owners = _owners(found)
    present = {member.id for member in found.members}
    if with_slots:
        for member in sorted(present & set(owners.values())):
            own = (slot for slot, owner in owners.items() if owner == member)
            console.print(f"{member} owns slots {_numbers(own)}")
    unowned = unowned_slots(found)
    nobodys = [slot for slot in unowned if slot not in owners]
    if nobodys:
        console.print(f"owned by nobody: slots {_numbers(nobodys)}")
    for former_owner in sorted({owners[slot] for slot in unowned if slot in owners}):
        own = (slot for slot in unowned if owners.get(slot) == former_owner)
        console.print(f"owned by {former_owner}, which is gone: slots {_numbers(own)}")


def _numbers(slots: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(slots)))


def _console() -> Console:
    """Returns a console that truncates nothing if no terminal sets the width."""
    console = console_of(soft_wrap=True)
    return console if console.is_terminal else console_of(width=250)
