"""The statements of the chart's README are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.charts.rendering import CHART, ROOT, needs_helm, template


def test_the_table_of_values_is_that_of_the_values() -> None:
    output = subprocess.run(
        [sys.executable, "-c", "import chart_values as c; print(c.readme(), end='')"],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    assert (CHART / "README.md").read_text() == output.stdout, "run python scripts/chart_values.py"


def test_every_value_that_is_mentioned_exists() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for document in (
        CHART / "README.md",
        CHART / "UPGRADING.md",
        ROOT / "docs" / "guides" / "runbooks.md",
    ):
        text = document.read_text().partition("<!-- values")[0]
        for path in re.findall(r"`([a-z]\w*(?:\.[a-zA-Z]+)+)[`:]", text):
            if path.partition(".")[0] not in values:
                continue
            part = values
            for name in path.split("."):
                assert name in part, f"{document.name}: {path}"
                part = part[name]


@needs_helm
def test_the_example_installs(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (CHART / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        given = tmp_path / "values.yaml"
        given.write_text(re.sub(r"^   ", "", block, flags=re.M))
        done = template(given)
        assert done.returncode == 0, done.stderr


@needs_helm
@pytest.mark.parametrize("column", [1, 5])
def test_the_sizes_are_values(column: int, tmp_path: Path) -> None:
    rows = re.findall(r"^\| `([^|]+)\|(.+)\|$", (CHART / "README.md").read_text(), re.M)
    settings = []
    for names, cells in rows:
        numbers = cells.split("|")
        if "." not in names or len(numbers) != 5:
            continue
        first, *more = re.findall(r"`?([\w.]+)`?", names)
        prefix = first.rpartition(".")[0]
        paths = [first, *(prefix + name for name in more)]
        for path, number in zip(paths, numbers[column - 1].split(", "), strict=True):
            settings.append(f"{path}={number.strip().replace(',', '')}")
    assert len(settings) == 9
    given = tmp_path / "values.yaml"
    given.write_text((CHART / "ci" / "minimal-values.yaml").read_text())
    done = template(given, *settings)
    assert done.returncode == 0, done.stderr
