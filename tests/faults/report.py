"""The table of faults: printed, and kept in `docs/results/faults.md` between two marks."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.campaign import FAULTS, Row

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "results" / "faults.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"

_COMMAND = "`make faults`"
_HEADER = (
    "| fault | resumed after, s | target | objects | pairs | lost | doubled | longest wait, s "
    "| load | day | beside |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def table(rows: Sequence[Row], *, header: bool = True) -> str:
    """Returns rows of Markdown."""
    lines = [_HEADER] if header else []
    return "\n".join(lines + [_line(row) for row in rows])


def _line(row: Row) -> str:
    seen, account, target_s = row.seen, row.account, row.fault.target_s
    resumed = "" if seen is None or seen.resumed_s is None else f"{seen.resumed_s:.1f}"
    target = "" if target_s is None else f"≤ {target_s:.0f}"
    figures = ["", "", "", "", ""]
    if account is not None:
        figures = [
            f"{account.objects:,}",
            f"{account.pairs:,}",
            f"{account.lost:,}",
            f"{account.surplus:,}",
            f"{account.longest_wait_s:.1f}",
        ]
    note = "" if seen is None else seen.note
    if row.failure and row.failure != note:
        note = f"**{row.failure.splitlines()[0]}** {note}"
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    cells = [row.fault.what, resumed, target, *figures, f"{row.load:.1f}", day, note.strip()]
    return f"| {' | '.join(cells)} |"


def keep(rows: Sequence[Row], document: Path = DOCUMENT) -> None:
    """Writes rows into the document; those of faults that were not tested stay as they are.

    The machines of such rows stay, too: the day relates a row to its machine.
    """
    text = document.read_text()
    head, _, rest = text.partition(BEGIN)
    former, _, tail = rest.partition(END)
    kept = {line.split(" | ")[0].removeprefix("| "): line for line in former.splitlines()}
    tried = {row.fault.what: _line(row) for row in rows}
    machines = [line for line in former.splitlines() if line.startswith(_COMMAND)]
    if not any(fault.what in kept and fault.what not in tried for fault in FAULTS):
        machines = []
    machines.append(
        f"{_COMMAND}, {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} × {_processor()}, "
        f"Python {platform.python_version()}"
    )
    kept |= tried
    lines = [kept[fault.what] for fault in FAULTS if fault.what in kept]
    received = "\n\n".join(dict.fromkeys(machines))
    document.write_text(
        "\n".join([f"{head}{BEGIN}", received, "", _HEADER, *lines, f"{END}{tail}"])
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
