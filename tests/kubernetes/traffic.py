"""Publishes and receives inside the cluster: the client's side of these tests.

    python -m tests.kubernetes.traffic NAME SEED --router HOST:PORT [--ca FILE --token-file FILE]

Reads commands from stdin, one word a line, and answers each with one line of JSON:

    progress  waits for all matches of the next objects; returns the seconds taken
    finish    ends the stream, waits for all of it and compares with the oracle; returns the count
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from sirocco.cli.terminal.remote import add_connection, connect
from tests.end_to_end.under_load import Traffic

# A bound, not a promise: one node of two cores, which also runs the control plane.
WAIT_S = 600.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("seed")
    add_connection(parser)
    args = parser.parse_args(arguments)
    with (
        connect(args) as client,
        Traffic((), args.name, args.seed, wait_s=WAIT_S, client=client) as traffic,
    ):
        _say(ready=True)
        for line in sys.stdin:
            command = line.strip()
            try:
                if command == "progress":
                    _say(resumed_s=round(traffic.await_progress(), 2))
                elif command == "finish":
                    traffic.finish()
                    _say(objects=traffic.published)
                    return 0
            except AssertionError as wrong:
                _say(wrong=str(wrong))
                return 1
    return 1


def _say(**members: Any) -> None:
    print(json.dumps(members), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
