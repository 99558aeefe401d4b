"""What images are built of is listed by version and SHA-256; nothing that is needed is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ASKED = {
    "images": [*PROJECT["dependencies"], *EXTRAS["gateway"], *EXTRAS["connect"]],
    "images-spark": EXTRAS["spark"],
}


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


@pytest.mark.parametrize("image", ASKED)
def test_all_packages_of_an_image_have_hashes(image: str) -> None:
    text = (ROOT / "locks" / f"{image}.txt").read_text()
    pinned = re.split(r"\n(?=[a-zA-Z])", text.partition("\n")[2])
    assert all("==" in each and "--hash=sha256:" in each for each in pinned if each.strip())
    names = {name_of(each) for each in pinned}
    own = {"sirocco-client"}
    assert {name_of(each) for each in ASKED[image]} - own <= names
    assert "pip" in names


def test_builds_take_packages_from_the_locks_alone() -> None:
    script = (ROOT / "scripts/images/wheels.sh").read_text().replace("\\\n", " ")
    fetching = re.findall(r'"\$\{pip\[@\]\}" (?:wheel|download|install)\b.*', script)
    locked, own = fetching
    assert "--require-hashes" in locked
    assert "--no-deps" in own
    assert '"$work"' in own
