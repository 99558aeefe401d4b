"""`sirocco cluster`: who is there, who owns what, which map is in force."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from sirocco_client import ClusterDescription

from sirocco.cli.balance import show
from sirocco.cli.remote import add_connection, connect
from sirocco.cli.status import ExitCode


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "cluster",
        description="Shows the processes of a cluster, what each owns, and the map in force.",
    )
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
        members = asdict(found)
        if balance is not None:
            members["balance"] = asdict(balance)
        print(json.dumps(members))
    else:
        _print(found, _console())
        if balance is not None:
            show(balance, _console())
    return ExitCode.OK


def _print(found: ClusterDescription, console: Console) -> None:
    console.print(
        f"cluster {found.cluster}: map version {found.map_version} ({found.scheme}), "
        f"{found.leaf_count} leaves in {found.slot_count} slots, "
        f"leader {found.leader or 'nobody'}"
    )
    members = Table("member", "address", "http", "owns", "loads", box=None, pad_edge=False)
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
            ", ".join(f"{name} {value:,.0f}" for name, value in sorted(member.loads.items())),
        )
    console.print(members)
    if not found.leaves:
        return
    leaves = Table("leaf", "slot", "west", "south", "east", "north", box=None, pad_edge=False)
    for leaf in found.leaves:
        sides = (f"{side:.4f}" for side in (leaf.west, leaf.south, leaf.east, leaf.north))
        leaves.add_row(str(leaf.id), str(leaf.slot), *sides)
    console.print(leaves)


def _console() -> Console:
    """A console that cuts nothing off where no terminal sets the width."""
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, width=250)
