"""Writes the table of values into charts/sirocco/README.md, from the comments of values.yaml.

python scripts/chart_values.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[1] / "charts" / "sirocco"
VALUES = CHART / "values.yaml"
README = CHART / "README.md"
BEGIN, END = "<!-- values: scripts/chart_values.py -->", "<!-- end of values -->"


def rows_of(lines: list[str], node: yaml.MappingNode, path: str) -> Iterator[str]:
    """Returns a row for each value, and for each group that a comment speaks of."""
    for key, value in node.value:
        name = f"{path}{key.value}"
        about = comment_above(lines, key.start_mark.line)
        is_group = isinstance(value, yaml.MappingNode) and value.value and not value.flow_style
        if is_group:
            if about:
                yield f"| `{name}` | | {about} |"
            yield from rows_of(lines, value, f"{name}.")
        else:
            default = yaml.safe_load(yaml.serialize(value))
            yield f"| `{name}` | `{json.dumps(default, ensure_ascii=False)}` | {about} |"


def comment_above(lines: list[str], line: int) -> str:
    """Returns the comment that stands directly above a line, in one line."""
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("# "):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("# "))
    return " ".join(found).replace("|", "\\|")


def table() -> str:
    """Returns the table."""
    text = VALUES.read_text()
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)
    rows = rows_of(text.splitlines(), node, "")
    return "\n".join(["| value | default | |", "|---|---|---|", *rows])


def readme() -> str:
    """Returns the README with the table as it ought to be."""
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(readme())
