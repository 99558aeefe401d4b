"""Audit log: who changed what, and who was refused, one structured line each.

Lines go to the logger `sirocco.audit`, beside all other logs and whatever their level. Texts of
strangers (names, messages, subjects of JWTs) are shortened, and what is not printable is escaped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from sirocco.model.access import Grant
from sirocco.model.errors import SiroccoError
from sirocco.telemetry.logging import event

logger = logging.getLogger("sirocco.audit")

LEVELS = ("off", "changes", "all")

# Of one text in a line.
TEXT_LENGTH_MAX = 256

# Names in one line; those of a bulk request are spread over several.
NAMES_MAX = 100

# The first refusal of a kind is written at once, the others of this time are counted.
WINDOW_S = 10.0

# Kinds of refusals in that time: anybody can make up tenants and connections. Beyond them all are
# one kind.
KINDS_MAX = 256

# Method, code, and what is known of the caller.
_Kind: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...]]


def shown(text: str) -> str:
    """Returns a stranger's text as it may stand in a log."""
    kept = text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"
    if kept.isprintable():
        return kept
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in kept
    )


def who(grant: Grant, peer: str) -> dict[str, str]:
    """Returns the fields that name a caller; without tokens only the peer."""
    name = "sub" if grant.is_jwt else "token"
    return {"tenant": shown(grant.tenant), name: shown(grant.id), "peer": shown(peer)}


def _later(seconds: float, job: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, job)


class Audit:
    """Writes the lines of one process; refusals are written from one loop.

    Args:
        level: one of `LEVELS`.
        later: runs a job after some seconds.
    """

    def __init__(
        self, level: str = "off", later: Callable[[float, Callable[[], None]], None] = _later
    ) -> None:
        self._later = later
        # Kind → refusals of the present window that were only counted.
        self._counted: dict[_Kind, int] = {}
        self.set_level(level)

    def set_level(self, level: str) -> None:
        """Says what is written from now on."""
        self.writes_changes = level in {"changes", "all"}
        self.writes_refusals = level == "all"
        # Not that of the process: less chatter must not end the audit.
        logger.setLevel(logging.INFO)

    def changed(
        self,
        action: str,
        names: Sequence[str],
        errors: Mapping[int, SiroccoError],
        caller: Mapping[str, str],
    ) -> None:
        """Writes changes that somebody asked for.

        Args:
            action: such as `register_query`.
            names: ids of what was to be changed.
            errors: row → why it was not changed.
            caller: see `who`.
        """
        if not self.writes_changes:
            return
        rows: dict[str, list[int]] = {}
        for row in range(len(names)):
            error = errors.get(row)
            rows.setdefault("ok" if error is None else error.code.lower(), []).append(row)
        for outcome, some in rows.items():
            for part in _parts(some):
                fields = {"action": action, "ids": [shown(names[row]) for row in part]}
                fields |= {"outcome": outcome, **caller}
                if (error := errors.get(part[0])) is not None:
                    fields["reason"] = shown(str(error))
                logger.info("", extra=event("audit_change", **fields))

    def refused(self, action: str, outcome: str, reason: str, caller: Mapping[str, str]) -> None:
        """Writes, or counts, a call that was refused for its rights or a quota.

        Args:
            action: name of the method.
            outcome: code of the error.
            reason: the error's message.
            caller: see `who`.
        """
        if not self.writes_refusals:
            return
        known = {name: text for name, text in caller.items() if name != "peer"}
        # Without the port, so that a client that connects again and again is one.
        host = caller.get("peer", "").rpartition(":")[0]
        kind: _Kind = (action, outcome, (*known.items(), ("host", host)))
        if kind not in self._counted and len(self._counted) >= KINDS_MAX:
            kind = ("other", "refused", ())
        if kind in self._counted:
            self._counted[kind] += 1
            return
        if not self._counted:
            self._later(WINDOW_S, self.summarise)
        self._counted[kind] = 0
        fields = {"action": action, "outcome": outcome, "reason": shown(reason), **caller}
        logger.info("", extra=event("audit_refusal", **fields))

    def summarise(self) -> None:
        """Ends the window: writes how many refusals of each kind there were beside the first."""
        counted, self._counted = self._counted, {}
        for (action, outcome, known), count in counted.items():
            if count:
                fields = {"action": action, "outcome": outcome, **dict(known)}
                extra = event("audit_refusals", **fields, count=count, seconds=WINDOW_S)
                logger.info("", extra=extra)


def _parts(rows: Sequence[int]) -> Iterator[list[int]]:
    each = iter(rows)
    while part := list(islice(each, NAMES_MAX)):
        yield part


# Of this process; off until its settings are read.
AUDIT = Audit()
