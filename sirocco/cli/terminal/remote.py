"""Shared by all commands that connect to a running cluster."""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sirocco_client import Client, ConnectionChange, InvalidArgument, Retry, Tls, TokenFile

from sirocco.cli.files.whole_file import read_whole
from sirocco.cli.terminal.numbers import seconds
from sirocco.cli.terminal.paths import filled, path
from sirocco.cli.terminal.status import CommandError
from sirocco.cli.terminal.terminal import note

# A connection restored within this time is not reported: for example, another router took over.
# Within two seconds users must learn why nothing happens.
_NOTE_S = 0.5
_NOTED_TIMEOUT_S_MIN = 2.0

# Of a file that holds a token or a cursor.
TEXT_BYTES_MAX = 1 << 16

# Of certificates of authorities: those of a whole system take a quarter of a megabyte.
CA_BYTES_MAX = 4 << 20

DIRECTORY = Path(".run")
"""Where a local cluster has its files by default."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select the cluster and the connection."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--router",
        type=filled,
        metavar="HOST:PORT",
        help="of a router, or of several, separated by commas (SIROCCO_ROUTER, or that of the "
        "cluster that `sirocco local` runs here)",
    )
    group.add_argument("--ca", type=path, metavar="FILE", help="use TLS and trust this authority")
    group.add_argument(
        "--server-name",
        type=filled,
        metavar="NAME",
        help="name in the servers' certificates, where it is not the host (with --ca)",
    )
    group.add_argument("--token-file", type=path, metavar="FILE", help="bearer token")
    group.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="S", help="limit for one call (30)"
    )


@contextmanager
def connect(args: argparse.Namespace, *, retry: Retry | None = None) -> Iterator[Client]:
    """Yields a client of the selected cluster, and reports lost connections.

    Args:
        args: The options.
        retry: How broken streams are retried; None: the client's default.

    Raises:
        CommandError: A file that an option names cannot be read.
    """
    try:
        if args.server_name is not None and args.ca is None:
            raise CommandError("--server-name needs --ca")
        tls = (
            None
            if args.ca is None
            else Tls(
                root_certificates=read_whole(args.ca, CA_BYTES_MAX), server_name=args.server_name
            )
        )
        token = None if args.token_file is None else TokenFile(args.token_file)
    except OSError as error:
        raise CommandError(str(error)) from None
    except InvalidArgument as error:
        raise CommandError(f"--token-file: {error.message}") from None
    router = _router(args)
    with (
        contextlib.closing(_ConnectionNotes()) as notes,
        Client(
            router,
            tls=tls,
            token=token,
            retry=retry,
            timeout_s=args.timeout,
            # With a shorter time limit, the error itself is soon enough.
            on_connection=notes.changed if args.timeout > _NOTED_TIMEOUT_S_MIN else None,
        ) as client,
    ):
        yield client


def text_of(path: Path) -> str:
    """Returns the text of a small file that an option names, with or without a byte order mark.

    Raises:
        CommandError: It is no text, or larger than `TEXT_BYTES_MAX`.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(TEXT_BYTES_MAX + 1)
    if len(data) > TEXT_BYTES_MAX:
        raise CommandError(f"{path}: has more than {TEXT_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandError(f"{path}: is no text in UTF-8") from None


class _ConnectionNotes:
    """Reports servers that have been unreachable for a moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, threading.Timer] = {}
        self._is_down_reported = False

    def changed(self, change: ConnectionChange) -> None:
        """Records that a connection was lost or restored."""
        with self._lock:
            for timer in self._waiting.values() if change.is_up else ():
                timer.cancel()
            if change.is_up:
                self._waiting.clear()
                if self._is_down_reported:
                    note(f"connected to {change.address} again")
                self._is_down_reported = False
                return
            timer = threading.Timer(_NOTE_S, self._note, (change,))
            timer.daemon = True
            self._waiting[change.address] = timer
            timer.start()

    def close(self) -> None:
        """Stops reporting."""
        with self._lock:
            for timer in self._waiting.values():
                timer.cancel()
            self._waiting.clear()

    def _note(self, change: ConnectionChange) -> None:
        with self._lock:
            if self._waiting.pop(change.address, None) is None:
                return
            self._is_down_reported = True
            what = "lost the connection to" if change.was_up else "cannot reach"
            note(f"{what} {change.address}, retrying")


def _router(args: argparse.Namespace) -> str:
    """Returns the router of the option, the environment, or a cluster in this directory.

    Raises:
        CommandError: None of them names a router.
    """
    if args.router is not None:
        return str(args.router)
    if found := os.environ.get("SIROCCO_ROUTER"):
        return found
    from sirocco.local.cluster import routers_of  # noqa: PLC0415 - where none is named
    from sirocco.local.invocation import program  # noqa: PLC0415

    if found := ",".join(routers_of(DIRECTORY)):
        return found
    raise CommandError(
        "which cluster? Say --router HOST:PORT, set SIROCCO_ROUTER, or start one here: "
        f"{program()} local up"
    )
