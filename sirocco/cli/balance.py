"""`sirocco balance`: last measured loads, decisions, and the proposed change."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table
from sirocco_client import Balance, BalanceDecision

from sirocco.cli.terminal.remote import add_connection, connect
from sirocco.cli.terminal.status import ExitCode
from sirocco.cli.terminal.terminal import console as console_of
from sirocco.cli.terminal.terminal import print_json

if TYPE_CHECKING:
    from rich.console import Console

# Leaves that are shown; --json prints more.
LEAVES_SHOWN = 8

# Width without a terminal: nothing is truncated.
WIDTH = 200


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "balance",
        description="Shows the loads of evaluators, slots and leaves in the last round, the last "
        "decisions of the coordinator, and what its balancer would change now.",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object, with all leaves")
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    with connect(args) as client:
        found = client.balance()
    if args.json:
        print_json(asdict(found))
    else:
        show(found, console_of(soft_wrap=True, width=WIDTH))
    return ExitCode.OK


def show(found: Balance, console: Console) -> None:
    """Prints a round."""
    if not found.is_on:
        console.print("loads are not balanced (SIROCCO_BALANCE=off)")
        return
    if not found.at_ms:
        console.print(found.state)
        return
    console.print(
        f"map version {found.map_version}, balancer {found.balancer or 'none'}; round of "
        f"{found.round_ms / 1_000:.1f} s until {_time(found.at_ms)}"
    )
    console.print(
        f"imbalance {found.imbalance:.2f} (most loaded evaluator over the mean); "
        f"{found.state or 'changing'}; {found.moves_total} slots moved and "
        f"{found.map_changes_total} maps changed since this coordinator leads"
    )
    console.print(_evaluators(found))
    console.print(_leaves(found))
    if found.decisions:
        console.print(_decisions("decided", found.decisions))
    if found.proposal is not None:
        console.print(_decisions("would change now", (found.proposal,)))


def _evaluators(found: Balance) -> Table:
    table = Table("evaluator", "share", "slots, heaviest first", box=None, pad_edge=False)
    shares: dict[str, float] = {}
    for slot in found.slots:
        shares[slot.owner] = shares.get(slot.owner, 0.0) + slot.share
    for owner, share in sorted(shares.items(), key=lambda each: -each[1]):
        own = sorted((s for s in found.slots if s.owner == owner), key=lambda s: -s.share)
        slots = " ".join(f"{slot.slot}:{slot.share:.1%}" for slot in own)
        table.add_row(owner or "nobody", f"{share:.1%}", slots)
    return table


def _leaves(found: Balance) -> Table:
    names = ("heaviest leaves", "slot", "share", "objects/s", "matches/s", "queries")
    table = Table(*names, box=None, pad_edge=False)
    for leaf in found.leaves[:LEAVES_SHOWN]:
        table.add_row(
            str(leaf.leaf),
            str(leaf.slot),
            f"{leaf.share:.1%}",
            f"{leaf.objects_per_s:,.0f}",
            f"{leaf.matches_per_s:,.0f}",
            f"{leaf.queries:,.0f}",
        )
    return table


def _decisions(title: str, decisions: tuple[BalanceDecision, ...]) -> Table:
    names = (
        title,
        "reason",
        "slots",
        "map",
        "greatest load",
        "queries copied",
        "seconds",
        "outcome",
    )
    table = Table(*names, box=None, pad_edge=False)
    for one in decisions:
        falls = one.maximum_after / one.maximum_before - 1 if one.maximum_before else 0.0
        table.add_row(
            _time(one.at_ms),
            one.reason,
            str(one.moves) if one.moves else "",
            str(one.map_version) if one.map_version else "",
            f"{falls:+.0%}",
            f"{one.moved_queries:,.0f}",
            f"{one.seconds:.1f}" if one.seconds else "",
            one.outcome if title == "decided" else "",
        )
    return table


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        # Outside the calendar; shown as a number.
        return f"{at_ms} ms"
