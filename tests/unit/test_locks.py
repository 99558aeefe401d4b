"""Locked Python packages: every package that the set-up installs has a version and checksums."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {
    "kernels": None,
    "run": ("geo", "demo", "gateway", "connect"),
    "dev": ("geo", "demo", "gateway", "connect", "dev"),
    "test": ("geo", "demo", "gateway", "connect", "dev", "spark"),
}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(level: str) -> dict[str, list[tuple[str, str, list[str]]]]:
    """Returns name → version, marker and checksums of each of its entries."""
    found: dict[str, list[tuple[str, str, list[str]]]] = {}
    text = (ROOT / "locks" / f"{level}.txt").read_text()
    for entry in re.sub(r" \\\n\s*", " ", text).splitlines():
        if entry.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)(?: ; ([^#]*?))?((?: --hash=\S+)*)", entry)
        assert match is not None, entry
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})(?= |$)", match[4])
        found.setdefault(plain(match[1]), []).append((match[2], match[3] or "", hashes))
    return found


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {plain(name): version for name, version in pairs}


def asked(extras: tuple[str, ...]) -> set[str]:
    projects = [
        tomllib.loads((ROOT / path / "pyproject.toml").read_text()) for path in (".", "sdk")
    ]
    named = [each for project in projects for each in project["project"]["dependencies"]]
    for extra in extras:
        named += projects[0]["project"]["optional-dependencies"][extra]
    if "geo" in extras:
        named += projects[1]["project"]["optional-dependencies"]["geo"]
    return {plain(re.split(r"[<>=!~ ;\[]", each)[0]) for each in named} - {"sirocco-client"}


@pytest.mark.parametrize("level", LEVELS)
def test_every_package_of_a_level_is_locked_to_its_pinned_version(level: str) -> None:
    found, versions = locked(level), pinned()
    extras = LEVELS[level]
    wanted = {"numba", "numpy", "setuptools"} | (asked(extras) if extras is not None else set())
    assert wanted <= found.keys()
    for name, entries in found.items():
        for version, marker, hashes in entries:
            # Several wheels, for several Pythons and processors, or one for all and the sources.
            assert hashes, name
            # Packages for only some Pythons need not be in the environment of the pins.
            assert marker or name in versions, name
            assert versions.get(name, version) == version, name


def test_levels_hold_those_below_them_and_nothing_names_a_registry() -> None:
    kernels, run, dev, test = (locked(level) for level in LEVELS)
    for lower, higher in ((kernels, run), (run, dev), (dev, test)):
        assert all(higher.get(name) == entries for name, entries in lower.items())
    for path in (ROOT / "locks").glob("*.txt"):
        assert "://" not in path.read_text()


def test_every_dependency_has_a_reason() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = asked(tuple(extras["optional-dependencies"]))
    words = (ROOT / "locks/README.md").read_text()
    assert [each for each in sorted(wanted) if not re.search(rf"\b{each}\b", words, re.I)] == []


def test_the_set_up_installs_nothing_else() -> None:
    setup = (ROOT / "scripts/setup.sh").read_text()
    commands = [line.strip() for line in setup.splitlines() if '"${pip[@]}"' in line]
    assert len(commands) == 4
    assert all("--require-hashes" in line or "--no-deps" in line for line in commands)
