"""Places of the words by which objects match, for queries that ask for them."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco_api.v1.columns_pb2 import HighlightColumns

from sirocco_client.errors import Internal


@dataclass(frozen=True, slots=True)
class Highlight:
    """The place of a word that made an object match: `object.text[start:end]`.

    Attributes:
        term: The word, phrase or beginning, as the analysis of texts writes it.
        start, end: Its first character, and the one after its last.
    """

    term: str
    start: int
    end: int


def check_highlights(shown: HighlightColumns) -> None:
    """Refuses columns that do not fit together.

    Raises:
        Internal: They do not fit.
    """
    sizes = {len(each) for each in (shown.matches, shown.starts, shown.ends, shown.terms)}
    if len(sizes) > 1 or len(shown.matches) % 4:
        raise Internal("columns of a response do not fit together")


def read_highlights(shown: HighlightColumns) -> dict[int, tuple[Highlight, ...]]:
    """Returns the places by match, or by entry of lists.

    Raises:
        Internal: A place is of a word that is not there.
    """
    matches, starts, ends, terms = (
        memoryview(each).cast("I")
        for each in (shown.matches, shown.starts, shown.ends, shown.terms)
    )
    found: dict[int, list[Highlight]] = {}
    for match, start, end, term in zip(matches, starts, ends, terms, strict=True):
        if term >= len(shown.names):
            raise Internal("a highlight is of an unknown word")
        found.setdefault(match, []).append(Highlight(shown.names[term], start, end))
    return {match: tuple(places) for match, places in found.items()}
