"""A user reads what is new in five minutes."""

from __future__ import annotations

import re
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
# Five minutes at 300 words a minute.
WORDS_MAX = 1_500


def test_each_version_is_read_in_five_minutes() -> None:
    versions = re.split(r"^## ", CHANGELOG.read_text(), flags=re.MULTILINE)[1:]
    words = {each.partition("\n")[0]: len(each.split()) for each in versions}
    assert {name: count for name, count in words.items() if count > WORDS_MAX} == {}
