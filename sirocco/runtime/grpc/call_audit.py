"""Changes that the present call makes, in the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import grpc

from sirocco.model.errors import DeadlineExceeded, Internal, SiroccoError
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.edge import connection
from sirocco.runtime.grpc.grpc_errors import of_peer
from sirocco.telemetry.audit import AUDIT, who


@contextmanager
def audited(action: str, names: Sequence[str]) -> Iterator[dict[int, SiroccoError]]:
    """Writes changes into the audit log once they are done, or it is known why not.

    Args:
        action: such as `register_query`.
        names: ids of what is changed; those of a bulk request may be left out where nothing is
            written (`AUDIT.writes_changes`).

    Yields:
        Where the body puts errors of single rows.
    """
    errors: dict[int, SiroccoError] = {}
    if not AUDIT.writes_changes:
        yield errors
        return
    by = who(caller().grant, connection())
    try:
        yield errors
    except BaseException as error:
        errors = dict.fromkeys(range(len(names)), _typed(error))
        raise
    finally:
        AUDIT.changed(action, names, errors, by)


def _typed(error: BaseException) -> SiroccoError:
    if isinstance(error, SiroccoError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return of_peer(error)
    if isinstance(error, Exception):
        return Internal("unexpected error; see the server's log")
    return DeadlineExceeded("the caller has gone; it may or may not have taken effect")
