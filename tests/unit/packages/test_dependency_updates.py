"""Each file that names dependencies is in a folder that the update service looks into."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import yaml

ROOT = Path(__file__).resolve().parents[3]

# Name of a file → the ecosystem that reads it.
ECOSYSTEMS = {
    "pyproject.toml": "pip",
    "requirements.txt": "pip",
    "package.json": "npm",
    "go.mod": "gomod",
    "Dockerfile": "docker",
}


def test_every_manifest_is_followed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    wanted = {
        (ECOSYSTEMS[path.name], "/" + str(path.parent).removeprefix("."))
        for path in map(PurePosixPath, listed.stdout.splitlines())
        if path.name in ECOSYSTEMS
    }
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    followed = {
        (each["package-ecosystem"], folder)
        for each in updates
        for folder in each.get("directories", [each.get("directory")])
    }
    assert followed - {("github-actions", "/")} == wanted
