"""Writes the reference pages that follow from the code: `docs/reference/cli.md` and `metrics.md`.

usage: python scripts/reference.py [--check]

With `--check` nothing is written; the exit status is 1 if a page is not what the code says.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry

from sirocco.cli.__main__ import _COMMANDS, _DESCRIPTION, command_module
from sirocco.telemetry import metrics

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_NOTE = "<!-- Written by scripts/reference.py from the code. Do not edit. -->\n"


def cli_page() -> str:
    """Returns the page of the commands: what each is for, its arguments and their meaning."""
    parts = [_NOTE, "# The command `sirocco`", "", *_paragraphs(_DESCRIPTION), ""]
    for command in _COMMANDS:
        top = argparse.ArgumentParser(prog="sirocco")
        command_module(command).add_parser(top.add_subparsers())
        for parser in _subparsers(top):
            for each in _with_subcommands(parser):
                parts += [f"## `{each.prog}`", "", *_paragraphs(each.description or ""), ""]
                parts += [*_arguments(each), ""]
    return "\n".join(parts).rstrip() + "\n"


def _paragraphs(text: str) -> list[str]:
    return [line.rstrip() for line in inspect.cleandoc(text).splitlines()]


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    # Written here and not by `format_help`, whose form differs from one Python to the next.
    shown = [
        each
        for each in parser._actions
        if not isinstance(each, argparse._HelpAction | argparse._SubParsersAction)
        and each.help != argparse.SUPPRESS
    ]
    if shown:
        yield "| argument | meaning |"
        yield "|---|---|"
    for action in shown:
        names = ", ".join(f"`{each}`" for each in action.option_strings)
        value = _value_of(action)
        name = " ".join(filter(None, [names, f"`{value}`" if value else ""]))
        meaning = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
        required = " (required)" if action.required and action.option_strings else ""
        yield f"| {name} | {_cell(meaning)}{required} |"


def _value_of(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    metavar = action.metavar or action.dest.upper()
    named = " ".join(metavar) if isinstance(metavar, tuple) else str(metavar)
    return f"{named} …" if action.nargs in {"*", "+"} else named


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [
        each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for each in action.choices.values()
    ]


def _with_subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for each in _subparsers(parser):
        yield from _with_subcommands(each)


def metrics_page() -> str:
    """Returns the page of the metrics: a table for each service."""
    parts = [
        _NOTE,
        "# Metrics",
        "",
        "Every process serves them at `/metrics` of its HTTP port, in the format of Prometheus. "
        "A counter's name ends in `_total`; a histogram has `_bucket`, `_sum` and `_count`.",
        "",
    ]
    for name, made in inspect.getmembers(metrics, inspect.isclass):
        if not name.endswith("Metrics") or made.__module__ != metrics.__name__:
            continue
        registry = CollectorRegistry()
        further = len(inspect.signature(made).parameters) - 1
        made(registry, *["…"] * further)
        parts += [f"## {inspect.getdoc(made).splitlines()[0].rstrip('.')}", ""]
        parts += ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        parts += sorted(_rows(registry))
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _rows(registry: CollectorRegistry) -> Iterator[str]:
    for collector in list(registry._collector_to_names):
        for family in collector.describe() if hasattr(collector, "describe") else ():
            labels = ", ".join(f"`{each}`" for each in getattr(collector, "_labelnames", ()))
            name = family.name + ("_total" if family.type == "counter" else "")
            yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


PAGES = {"cli.md": cli_page, "metrics.md": metrics_page}


def main() -> int:
    """Writes the pages, or compares them."""
    stale = []
    for name, page in PAGES.items():
        path = FOLDER / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != page():
                stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page())
    for name in stale:
        print(f"docs/reference/{name} is not what the code says: make reference", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
