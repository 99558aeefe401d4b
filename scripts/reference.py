"""Writes the pages of `docs/reference/` that follow from the code: commands, metrics, settings.

usage: python scripts/reference.py [--check]

With `--check` nothing is written; the exit status is 1 if a page is not what the code says.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import yaml
from prometheus_client import CollectorRegistry

from sirocco.cli.__main__ import _COMMANDS, _DESCRIPTION, command_module
from sirocco.model.durations import format_duration
from sirocco.runtime import settings
from sirocco.runtime.process.environment import shown_retention
from sirocco.services.gateway import settings as gateway_settings
from sirocco.telemetry import metrics

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
# An option that so many commands have is described once for all.
SHARED_BY = 5
_NOTE = "<!-- Written by scripts/reference.py from the code. Do not edit. -->\n"


def cli_page() -> str:
    """Returns the page of the commands: what each is for, its arguments and their meaning."""
    parts = [_NOTE, "# The command `sirocco`", "", *_paragraphs(_DESCRIPTION), ""]
    parsers: list[argparse.ArgumentParser] = []
    for command in _COMMANDS:
        top = argparse.ArgumentParser(prog="sirocco")
        command_module(command).add_parser(top.add_subparsers())
        for parser in _subparsers(top):
            parsers += _with_subcommands(parser)
    # What many commands have is described once.
    rows = Counter(row for each in parsers for row in _arguments(each))
    shared = [row for row, number in rows.items() if number >= SHARED_BY]
    parts += ["## Options of many commands", "", *_table(shared), ""]
    for each in parsers:
        own = [row for row in _arguments(each) if row not in shared]
        # Their names alone: the first table has the rest.
        others = [
            re.sub(r" `[^-`][^`]*`$", "", row[0]) for row in _arguments(each) if row in shared
        ]
        parts += [f"## `{each.prog}`", "", *_paragraphs(each.description or ""), ""]
        parts += [*_table(own), ""] if own else []
        parts += [f"Also {', '.join(others)}.", ""] if others else []
    return "\n".join(parts).rstrip() + "\n"


def _paragraphs(text: str) -> list[str]:
    return [_shown(line.rstrip()) for line in inspect.cleandoc(text).splitlines()]


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "|---|---|"
    for name, meaning in rows:
        yield f"| {name} | {meaning} |"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    # Written here and not by `format_help`, whose form differs from one Python to the next.
    shown = [
        each
        for each in parser._actions
        if not isinstance(each, argparse._HelpAction | argparse._SubParsersAction)
        and each.help != argparse.SUPPRESS
    ]
    for action in shown:
        names = ", ".join(f"`{each}`" for each in action.option_strings)
        value = _value_of(action)
        name = " ".join(filter(None, [names, f"`{value}`" if value else ""]))
        meaning = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
        required = " (required)" if action.required and action.option_strings else ""
        yield name, f"{_cell(meaning)}{required}"


def _value_of(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    metavar = action.metavar or action.dest.upper()
    named = " ".join(metavar) if isinstance(metavar, tuple) else str(metavar)
    return f"{named} …" if action.nargs in {"*", "+"} else named


def _cell(text: str) -> str:
    return _shown(" ".join(text.split()).replace("|", "\\|"))


def _shown(text: str) -> str:
    # As text, and not as a tag of HTML.
    return re.sub(r"<(?=[a-z])", "&lt;", text)


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
        "Every process serves them at `/metrics` of its HTTP port, in the format of Prometheus.",
        "",
    ]
    for made in _metrics():
        registry = CollectorRegistry()
        further = len(inspect.signature(made).parameters) - 1
        made(registry, *["…"] * further)
        parts += [f"## {(inspect.getdoc(made) or '').splitlines()[0].rstrip('.')}", ""]
        parts += ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        parts += sorted(_rows(registry))
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _metrics() -> Iterator[type]:
    """Returns the classes that declare metrics, a module of `sirocco.telemetry.metrics` each."""
    for each in pkgutil.iter_modules(metrics.__path__, f"{metrics.__name__}."):
        module = importlib.import_module(each.name)
        for name, made in inspect.getmembers(module, inspect.isclass):
            if name.endswith("Metrics") and made.__module__ == each.name:
                yield made


def _rows(registry: CollectorRegistry) -> Iterator[str]:
    for collector in list(registry._collector_to_names):
        for family in collector.describe() if hasattr(collector, "describe") else ():
            labels = ", ".join(f"`{each}`" for each in getattr(collector, "_labelnames", ()))
            name = family.name + ("_total" if family.type == "counter" else "")
            yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


# Values that turn on what other settings depend on, so that those are read, too.
_EXAMPLES = {
    "SIROCCO_KAFKA": "kafka:9092",
    "SIROCCO_ROUTER": "router:7070",
    "SIROCCO_KAFKA_SECURITY": "sasl_ssl",
    "SIROCCO_KAFKA_SASL_MECHANISM": "PLAIN",
    "SIROCCO_KAFKA_SASL_USERNAME": "sirocco",
    "SIROCCO_KAFKA_SASL_PASSWORD": "secret",
    "SIROCCO_REDIS": "rediss://redis:6379/0",
    "SIROCCO_TLS_CERTIFICATE": "tls.crt",
}


class _Recorder:
    """Stands in for the reader of the environment, and notes what is read instead of reading it."""

    def __init__(self, required: str = "required") -> None:
        self.found: dict[str, tuple[str, str]] = {}
        self._required = required

    def _note(self, name: str, default: object, values: str) -> None:
        # The first look is the one that counts: a mechanism is read again to compare it.
        self.found.setdefault(name, ("" if default is None else str(default), values))

    def text(self, name: str, default: str | None) -> str:
        self._note(name, default, "" if default is not None else self._required)
        return _EXAMPLES.get(name, default or "")

    def integer(self, name: str, default: int, greatest: int, *, least: int = 1) -> int:
        self._note(name, f"{default:,}", f"{least:,}–{greatest:,}")
        return default

    def number(self, name: str, default: float, least: float, greatest: float) -> float:
        self._note(name, f"{default:g}", f"{least:g}–{greatest:g}")
        return default

    def duration_ms(self, name: str, default_ms: int, least: int) -> int:
        default = format_duration(default_ms)
        self._note(name, default, f"from {format_duration(least)}" if least else "a duration")
        return 1_000

    def retention_ms(self, name: str, default_ms: int | None) -> int:
        self._note(name, shown_retention(default_ms), "a duration, or `unlimited`")
        return 1_000

    def switch(self, name: str, default: bool) -> bool:
        self._note(name, "on" if default else "off", "`on`, `off`")
        return default

    def choice(self, name: str, default: str | None, choices: tuple[str, ...]) -> str:
        self._note(name, default, ", ".join(f"`{each}`" for each in choices))
        return _EXAMPLES.get(name, default or "")

    def when(self, is_used: bool, otherwise: str) -> _Recorder:
        conditional = _Recorder("required if used")
        conditional.found = self.found
        return conditional


def read_settings() -> dict[str, tuple[str, str]]:
    """Returns each setting of a service with its default and the values that it takes."""
    recorder = _Recorder()
    with (
        mock.patch.object(settings, "Reader", return_value=recorder),
        mock.patch.object(gateway_settings, "Reader", return_value=recorder),
    ):
        settings.from_environment({})
        gateway_settings.from_environment({})
    return recorder.found


def settings_page() -> str:
    """Returns the page of the settings: a table for each group of scripts/settings.yaml.

    Raises:
        KeyError: a setting has no meaning there, or has one and is not read.
    """
    groups = yaml.safe_load((ROOT / "scripts" / "settings.yaml").read_text())
    others = groups.pop("others")
    found, values = read_settings(), _chart_values()
    parts = [
        _NOTE,
        "# Settings",
        "",
        "Services read their settings from the environment when they start. One that makes no "
        "sense ends the process with an error that names the variable. The last column names the "
        "value of the chart that sets it. Durations are written `500ms`, `10s`, `5m`, `24h`.",
        "",
    ]
    for title, meanings in groups.items():
        parts += [f"## {title}", "", meanings.pop("about"), ""]
        parts += ["| variable | default | values | meaning | chart |", "|---|---|---|---|---|"]
        for name, meaning in meanings.items():
            default, allowed = found.pop(name)
            chart = f"`{values[name]}`" if name in values else ""
            shown = f"`{default}`" if default else ""
            parts.append(f"| `{name}` | {shown} | {allowed} | {_cell(meaning)} | {chart} |")
        parts.append("")
    if found:
        raise KeyError(f"without a meaning in scripts/settings.yaml: {', '.join(found)}")
    parts += ["## Other variables", "", "Not of services alone.", ""]
    parts += ["| variable | meaning |", "|---|---|"]
    parts += [f"| `{name}` | {_cell(meaning)} |" for name, meaning in others.items()]
    return "\n".join(parts).rstrip() + "\n"


def _chart_values() -> dict[str, str]:
    """Returns the value of the chart that each variable is set from, where it is one."""
    text = (ROOT / "charts" / "sirocco" / "templates" / "configmap.yaml").read_text()
    return dict(re.findall(r"^ +(SIROCCO_\w+): {{ \.Values\.([\w.]+)", text, re.MULTILINE))


PAGES = {"cli.md": cli_page, "metrics.md": metrics_page, "settings.md": settings_page}


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
