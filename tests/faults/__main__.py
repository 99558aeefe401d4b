"""`python -m tests.faults`: tries the faults, prints a table, and keeps it in the docs if asked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.faults.campaign import FAULTS, tried
from tests.faults.report import keep, table
from tests.faults.rig import set_up
from tests.faults.wires import Wires


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all faults passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this fault; repeatable")
    parser.add_argument("--list", action="store_true", help="names the faults")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--directory", type=Path, help="where logs are kept; else they go")
    parser.add_argument("--keep", action="store_true", help="writes the rows into the docs")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(f"{fault.name:22} {fault.what}" for fault in FAULTS))
        return 0
    known = {fault.name: fault for fault in FAULTS}
    unknown = set(given.only or ()) - known.keys()
    if unknown:
        parser.error(f"no fault {', '.join(sorted(unknown))}; --list names them")
    chosen = [known[name] for name in given.only] if given.only else list(FAULTS)
    rows = []
    with set_up(given.directory) as rig:
        for fault in chosen:
            if not fault.is_possible(rig):
                reason = Wires.missing() or "needs root"
                print(f"{fault.name}: left out, {reason}", file=sys.stderr, flush=True)
                continue
            row = tried(rig, fault, given.seed)
            rows.append(row)
            print(table([row], header=len(rows) == 1), flush=True)
            if row.failure:
                print(f"{fault.name} FAILED: {row.failure}", file=sys.stderr, flush=True)
    if given.keep:
        keep(rows)
    return 1 if any(row.failure for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
