"""`sirocco map`: the partition map in force, proposals of another, and their progress."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from sirocco_client import MapChange

from sirocco.cli.files.whole_file import read_whole
from sirocco.cli.terminal.paths import naming, path
from sirocco.cli.terminal.remote import add_connection, connect
from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.cli.terminal.terminal import print_json, print_lines

# Between looks at a change in progress.
LOOK_S = 0.5


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "map",
        description="Shows the partition map in force, or changes to another one.",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="the map in force")
    show.add_argument("--out", type=path, metavar="FILE", help="write its bytes to a file")
    propose = actions.add_parser("propose", help="change to another map without a pause")
    propose.add_argument("file", type=path, metavar="FILE", help="the map, as jobs write it")
    propose.add_argument(
        "--as-next", action="store_true", help="ignore the version in the file, make it the next"
    )
    propose.add_argument("--wait", action="store_true", help="until the change has ended")
    status = actions.add_parser("status", help="progress of a change of the map")
    for action, run in ((show, _show), (propose, _propose), (status, _status)):
        action.add_argument("--json", action="store_true", help="as one JSON object")
        add_connection(action)
        action.set_defaults(run=run)


def _show(args: argparse.Namespace) -> int:
    # The engine takes a while to import; the other actions do not need it.
    from sirocco.schemes.map.map_bytes import from_bytes  # noqa: PLC0415

    with connect(args) as client:
        found = client.map_change(with_map=True)
    if not found.map_version:
        raise CommandError("the cluster has no map yet", ExitCode.UNAVAILABLE)
    partition_map = from_bytes(found.partition_map)
    if args.out is not None:
        with naming(args.out):
            args.out.write_bytes(found.partition_map)
    shown = {
        "version": partition_map.version,
        "scheme": partition_map.scheme,
        "slots": partition_map.slots,
        "leaves": len(partition_map.leaves),
        "text_nodes": len(partition_map.text_nodes),
        "keyword_nodes": len(partition_map.keyword_nodes),
        "bytes": len(found.partition_map),
    }
    _print(shown, args)
    return ExitCode.OK


def _propose(args: argparse.Namespace) -> int:
    data = read_whole(args.file)
    with connect(args) as client:
        if args.as_next:
            data = _as_next(args.file, data, client.map_change().map_version + 1)
        version = client.propose_map(data)
        found = client.map_change()
        while args.wait and _is_running(found, version):
            time.sleep(LOOK_S)
            found = client.map_change()
    _print({"accepted": version, **_members(found)}, args)
    return ExitCode.OK


def _is_running(found: MapChange, version: int) -> bool:
    """Whether the change to a version is still in progress; another may follow at once."""
    is_under_way = found.phase != "none" and found.next_version <= version
    return found.map_version < version or is_under_way


def _status(args: argparse.Namespace) -> int:
    with connect(args) as client:
        found = client.map_change()
    _print(_members(found), args)
    return ExitCode.OK


def _as_next(file: Path, data: bytes, version: int) -> bytes:
    from sirocco.model.errors import InvalidArgument  # noqa: PLC0415
    from sirocco.schemes.map.map_bytes import from_bytes, to_bytes  # noqa: PLC0415

    try:
        return to_bytes(from_bytes(data).with_version(version))
    except InvalidArgument as error:
        raise CommandError(f"{file}: {error}") from None


def _members(found: MapChange) -> dict[str, Any]:
    members: dict[str, Any] = {"version": found.map_version, "phase": found.phase}
    if found.next_version:
        members["next_version"] = found.next_version
        members["waiting"] = found.waiting
        members["partitions"] = found.partitions
    return members


def _print(members: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        print_json(members)
        return
    for name, value in members.items():
        print_lines(f"{name.replace('_', ' '):14}{value}")
