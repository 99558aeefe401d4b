"""Prints lines for people and for programs: the only output of the tool.

Much of the output comes from strangers: texts and ids of objects, ids of queries, messages of
servers. A terminal obeys control characters, so all of them are escaped here.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# - C0, DEL and C1: a terminal takes U+009B for the beginning of a command as it takes ESC [.
# - Ends of lines that are no line feed, by which one line would look like two.
# - Marks that turn the direction of what follows, by which a line reads as another one.
# - Halves of surrogate pairs, which cannot be encoded at all.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(text: str) -> str:
    """Returns a text with its control characters escaped, on one line."""
    return _CONTROL.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return _NAMES.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def json_line(members: Any, *, ascii_only: bool = False) -> str:
    r"""Returns a value as JSON on one line, with control characters as \u escapes."""
    text = json.dumps(members, ensure_ascii=ascii_only)
    # They can only be in strings, where the escape means the same.
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_lines(*lines: str) -> None:
    """Prints lines on standard output, at once."""
    _print(sys.stdout, lines)


def print_json(members: Any) -> None:
    """Prints a value as a line of JSON on standard output, at once."""
    line = json_line(members)
    try:
        line.encode(_encoding(sys.stdout))
    except UnicodeEncodeError:
        # Escapes mean the same, and every encoding has them.
        line = json_line(members, ascii_only=True)
    print(line, flush=True)


def print_done(members: Any) -> None:
    """Prints what was changed as a line of JSON, if somebody reads it: changes go on without."""
    try:
        print_json(members)
    except BrokenPipeError:
        drop_output()


def note(*lines: str) -> None:
    """Prints lines on standard error; if nobody reads it, or it is full, the work goes on."""
    with suppress(OSError):
        _print(sys.stderr, lines)


@contextmanager
def ending_with(result: Callable[[], str | Mapping[str, Any]]) -> Iterator[None]:
    """Prints the result of the block at its end, also when that is an error: how far it came.

    Where standard output takes nothing any more, standard error says so, and the block still ends
    as it did: ^C ends the reader of a pipe as well.

    Args:
        result: returns a line, or a value to be printed as JSON.
    """
    try:
        yield
    except BaseException:
        with suppress(OSError):
            _print_result(result())
        raise
    _print_result(result())


def _print_result(result: str | Mapping[str, Any]) -> None:
    try:
        if isinstance(result, str):
            print_lines(result)
        else:
            print_json(result)
    except OSError as error:
        drop_output()
        note(result if isinstance(result, str) else json_line(result))
        if not isinstance(error, BrokenPipeError):
            raise


def drop_output() -> None:
    """Drops what standard output has not taken: at exit it would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(out: Any, lines: tuple[str, ...]) -> None:
    text = "".join(f"{shown(line)}\n" for line in lines)
    # Characters missing in the terminal's encoding must not end the command.
    encoding = _encoding(out)
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


def _encoding(out: Any) -> str:
    return getattr(out, "encoding", None) or "utf-8"


def console(*, stderr: bool = False, width: int | None = None, soft_wrap: bool = False) -> Console:
    """Returns a console for tables: strings are shown unchanged, with controls escaped.

    Args:
        stderr: Print on standard error.
        width: Width of lines; None: the terminal's.
        soft_wrap: Let the terminal wrap long lines.
    """
    # Commands without tables start faster without it.
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Plain(Console):
        """Takes no markup from strings, and escapes control characters."""

        def on_broken_pipe(self) -> None:
            # Its own way out is an exit with an error.
            raise BrokenPipeError

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(shown(text), **options | {"markup": False, "emoji": False})

    return Plain(
        stderr=stderr,
        width=width,
        soft_wrap=soft_wrap,
        highlight=False,
        markup=False,
        emoji=False,
    )
