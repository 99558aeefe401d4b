"""The lists of terms that `docs/reference/queries.md` shows."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from sirocco.model.text import terms_of

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "queries.md"
LIST = re.compile(r"over ((?:`[^`]+`(?:, )?)+)(?: lists)? (.+?)[;.](?: |$)")


def test_lists_of_terms_are_those_of_the_analysis() -> None:
    (paragraph,) = re.findall(r'A terms query \(`"k": 5`\)(.+?)\n\n', PAGE.read_text(), re.DOTALL)
    found = LIST.findall(paragraph.replace("\n", " "))
    assert len(found) == 2
    for posts, listed in found:
        counts = Counter(t for post in re.findall("`(.+?)`", posts) for t in set(terms_of(post)))
        first = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
        assert [f"{term} {count}" for term, count in first] == listed.split(", ")
