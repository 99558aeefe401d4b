"""Writes locks/: each Python package that a level of the set-up installs, by version and SHA-256.

And `docs/requirements.txt`, from `docs/requirements.in`: what `make docs` installs.

    .venv/bin/python scripts/lock.py

Versions are those of `constraints.txt`; what that lacks is resolved. One file holds for Linux on
x86_64 and aarch64 and for every Python that the project takes. `uv` resolves; it is installed aside
by pip, and asks the index that it is configured to ask.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
DOCS = ROOT / "docs" / "requirements.in"
UV = "uv==0.13.9"
ENGINE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Level of scripts/setup.sh → extras of the engine. `kernels` comes first in each of them: kernels
# are compiled while the rest is on its way.
LEVELS = {
    "run": ("geo", "demo", "gateway", "connect", "otel"),
    "dev": ("geo", "demo", "gateway", "connect", "otel", "dev"),
    "test": ("geo", "demo", "gateway", "connect", "otel", "dev", "tables", "spark"),
}
# What generates the client's code is of the oldest grpcio that it promises.
GENERATOR = "grpcio-tools"
KERNELS = ["numba", "numpy", "setuptools"]
# Of the images, beside the engine: redis-py asks for the first on a Python before 3.11.3, such as
# Debian's; pip installs the others and stays out.
SERVICES = ("gateway", "connect", "otel")
BESIDE_SERVICES = ["async-timeout==5.0.1", "pip"]
OWN = "sirocco-client"

HEAD = """\
# Written by scripts/lock.py from both pyproject.toml and constraints.txt, not by hand.
"""
OLDEST_HEAD = """\
# Written by scripts/lock.py from the lower bounds of sdk/pyproject.toml, not by hand.
"""
DOCS_HEAD = """\
# Written by scripts/lock.py from docs/requirements.in, not by hand: what `make docs` installs.
"""


def wanted(extras: tuple[str, ...]) -> list[str]:
    """Returns what the engine and its client ask for, with some extras."""
    client = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text())["project"]
    named = [*ENGINE["dependencies"], *client["dependencies"]]
    for extra in extras:
        named += ENGINE["optional-dependencies"][extra]
    # `sirocco-client[geo]` stands for what that extra of the client asks for.
    for owned in [each for each in named if each.startswith(f"{OWN}[")]:
        named += client["optional-dependencies"][owned.removeprefix(f"{OWN}[").rstrip("]")]
    return [each for each in named if not each.startswith(OWN)]


def oldest() -> list[str]:
    """Returns the oldest packages that the client promises to work with, and their generator."""
    client = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text())["project"]
    found = [re.findall(r"^([\w-]+)>=([\d.]+)", each) for each in client["dependencies"]]
    bounds = {name: version for ((name, version),) in found}
    named = [f"{name}=={version}" for name, version in bounds.items()]
    return [*named, f"{GENERATOR}=={bounds['grpcio']}"]


def lock(
    uv: Path, target: Path, requirements: list[str], head: str = HEAD, *, pinned: bool = True
) -> None:
    """Writes one file; unless `pinned`, without the versions of `constraints.txt`."""
    constraints = ("--constraint", ROOT / "constraints.txt") if pinned else ()
    with tempfile.TemporaryDirectory() as directory:
        asked = Path(directory) / "asked.in"
        asked.write_text("\n".join(requirements) + "\n")
        found = Path(directory) / "found.txt"
        subprocess.run(
            [
                *(uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
                *("--generate-hashes", "--no-header", "--no-annotate", "--emit-build-options"),
                *("--no-emit-index-url", "--no-emit-find-links"),
                *(*constraints, asked, "--output-file", found),
            ],
            check=True,
        )
        target.write_text(head + found.read_text())


def main() -> None:
    """Writes all of them."""
    LOCKS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as aside:
        subprocess.run([sys.executable, "-m", "venv", aside], check=True)
        binaries = Path(aside) / "bin"
        subprocess.run([binaries / "pip", "install", "--quiet", UV], check=True)
        lock(binaries / "uv", LOCKS / "kernels.txt", KERNELS)
        for level, extras in LEVELS.items():
            lock(binaries / "uv", LOCKS / f"{level}.txt", [*wanted(extras), *KERNELS])
            print(f"locks/{level}.txt", file=sys.stderr)
        lock(binaries / "uv", LOCKS / "images.txt", [*wanted(SERVICES), *BESIDE_SERVICES])
        spark = [*ENGINE["optional-dependencies"]["spark"], "pip"]
        lock(binaries / "uv", LOCKS / "images-spark.txt", spark)
        lock(binaries / "uv", LOCKS / "oldest.txt", oldest(), OLDEST_HEAD, pinned=False)
        lock(binaries / "uv", DOCS.with_suffix(".txt"), DOCS.read_text().split(), DOCS_HEAD)


if __name__ == "__main__":
    main()
