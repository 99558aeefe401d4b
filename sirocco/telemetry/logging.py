"""Structured logs: one JSON object a line on stderr."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

_INT_END = 1 << 63


def event(name: str, **fields: object) -> dict[str, Any]:
    """Returns what to pass as `extra`: the event's stable name and its ids."""
    return {"event": name, "fields": fields}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
        }
        line.update(getattr(record, "fields", {}))
        message = record.getMessage()
        if message:
            line["message"] = message
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:
            # A stranger's text or number that JSON has no form for must not lose the line.
            return orjson.dumps({name: _escaped(value) for name, value in line.items()}).decode()


def _escaped(value: object) -> object:
    """Returns a value as JSON has it; what is no text of Unicode or 64-bit number as escapes."""
    match value:
        case None | bool() | float():
            return value
        case str():
            return value.encode(errors="backslashreplace").decode()
        case int():
            return value if -_INT_END <= value < _INT_END else hex(value)
    try:
        return ascii(value)
    except (ValueError, RecursionError) as error:
        # It holds a number of thousands of digits, or is nested too deeply.
        return f"{type(value).__name__} ({type(error).__name__})"


# gRPC logs failures below a call here, with a traceback, also when a client disconnects during an
# answer: any client can cause as many of these as it likes.
_CALLS = "grpc._cython.cygrpc"
_GONE = frozenset({"ExecuteBatchError", "CancelledError"})


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a record of gRPC reports more than a client that disconnected."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ not in _GONE


# It logs each request with its whole URL, and that of a webhook is often a secret.
_REQUESTS = "httpx"


def configure(level: str) -> None:
    """Sends all logs of this process to stderr, from `level` up."""
    calls = logging.getLogger(_CALLS)
    calls.removeFilter(is_worth_a_line)
    calls.addFilter(is_worth_a_line)
    logging.getLogger(_REQUESTS).setLevel(logging.WARNING)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
