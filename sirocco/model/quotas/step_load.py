"""What the steps of a standing terms or ranked query take of evaluators, before any is taken.

A step is due at its time in every slot of the query, and a slot matches nothing meanwhile: so who
asks for very many delays everybody's notifications. How long one takes is known afterwards only: it
grows with the objects of its window, and counts that slide along with it may have to begin again at
any step. Therefore whole windows count, as if each alternative of the text were looked for by
itself, and each entry of the list, whose text is looked for.
"""

from __future__ import annotations

from sirocco.model.query import Query, RankedQuery, TermsQuery

# A window of this length counts as one step more for each alternative, and so do as many entries.
# Measured with 60,000 objects in the window of a query of the whole world (100 a second): 2 to 5 ms
# for the one, 1 ms for the other, and 0.1 to 0.4 ms for any step.
WINDOW_MS = 600_000
ENTRIES = 100

# From so many keywords on, the time of a ranked search grows with their square.
_KEYWORDS = 8


def step_load(query: Query) -> float:
    """Returns the steps a second of a standing query, those that take longer as several.

    Args:
        query: a continuous one. Without steps it has no load; without a window, which only a replay
            lets in, that counts as none.
    """
    if not isinstance(query, TermsQuery | RankedQuery) or query.step_ms is None:
        return 0.0
    windows = (query.window_ms or 0) / WINDOW_MS
    steps = 1 + query.k / ENTRIES + windows * _alternatives(query)
    return 1_000 / query.step_ms * steps


def _alternatives(query: TermsQuery | RankedQuery) -> float:
    if isinstance(query, RankedQuery):
        keywords = len(query.keywords)
        return keywords * max(1, keywords / _KEYWORDS)
    return 1 if query.expression is None else len(query.expression.conjunctions)
