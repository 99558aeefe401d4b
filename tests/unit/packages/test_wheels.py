"""The published wheels: the files and the metadata of both."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import sirocco

ROOT = Path(__file__).resolve().parents[3]
# Project → the folders of its package and the file where its users start reading.
PROJECTS = {
    "sirocco": (ROOT, ("sirocco",)),
    "sirocco-client": (ROOT / "sdk", ("sirocco_api", "sirocco_client")),
}


@pytest.fixture(scope="module", params=PROJECTS)
def wheel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[str], Message]:
    """Returns project, files and metadata; a copy is built, since a build changes the sources."""
    source, folders = PROJECTS[request.param]
    copy, built = (tmp_path_factory.mktemp(name) for name in ("source", "built"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(source / name, copy)
    for name in folders:
        shutil.copytree(
            source / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", built, copy], check=True
    )
    [path] = built.iterdir()
    with zipfile.ZipFile(path) as found:
        names = found.namelist()
        [metadata] = (name for name in names if name.endswith(".dist-info/METADATA"))
        return request.param, names, message_from_bytes(found.read(metadata))


def test_what_a_registry_shows(wheel: tuple[str, list[str], Message]) -> None:
    project, files, metadata = wheel
    assert (metadata["Name"], metadata["Version"]) == (project, sirocco.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in files)
    assert metadata["Description-Content-Type"] == "text/markdown"
    # The whole readme.
    assert len(str(metadata.get_payload()).splitlines()) > 50
    urls = {each.split(", ")[0] for each in metadata.get_all("Project-URL", ())}
    assert urls == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert "Typing :: Typed" in metadata.get_all("Classifier", ())


def test_each_package_has_its_types(wheel: tuple[str, list[str], Message]) -> None:
    project, files, _ = wheel
    packages = {"sirocco": ("sirocco",), "sirocco-client": ("sirocco_api", "sirocco_client")}
    for package in packages[project]:
        assert f"{package}/py.typed" in files
    # Generated code comes with its types.
    generated = {name for name in files if name.endswith("_pb2.py")}
    assert generated
    assert {f"{name}i" for name in generated} <= set(files)


def test_all_files_ship_that_the_code_reads(wheel: tuple[str, list[str], Message]) -> None:
    project, files, _ = wheel
    source, folders = PROJECTS[project]
    tracked: set[str] = set()
    for folder in folders:
        links = [each for each in (source / folder).iterdir() if each.is_symlink()]
        tracked |= tracked_files(source, folder) - {f"{folder}/{each.name}" for each in links}
        for link in links:
            own = tracked_files(source, str(link.resolve().relative_to(source)))
            tracked |= {f"{folder}/{name}" for name in own}
    # The recipe of the image needs a clone.
    assert sorted(tracked - {"sirocco/services/Dockerfile"} - set(files)) == []


def tracked_files(source: Path, folder: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", folder], cwd=source, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split())


def test_no_common_names_are_installed(wheel: tuple[str, list[str], Message]) -> None:
    """`services` and `loadgen` would meet those of other projects in site-packages."""
    project, files, _ = wheel
    top = {name.partition("/")[0] for name in files if ".dist-info/" not in name}
    assert top == set(PROJECTS[project][1])


def test_internal_contracts_do_not_ship_to_clients(wheel: tuple[str, list[str], Message]) -> None:
    project, files, _ = wheel
    internal = {name for name in files if name.endswith("slot_service_pb2.py")}
    if project == "sirocco":
        assert internal == {"sirocco/internal_api/v1/slot_service_pb2.py"}
        return
    assert {name.split("/")[0] for name in files if "dist-info" not in name} == {
        *("sirocco_api", "sirocco_client")
    }
    called = {
        name
        for path in (ROOT / "sdk/sirocco_client").rglob("*.py")
        for name in re.findall(r"(\w+)_pb2", path.read_text())
    }
    shipped = {match[1] for name in files if (match := re.search(r"/v1/(\w+)_pb2\.py$", name))}
    assert shipped == called
