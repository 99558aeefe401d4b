"""Recounts the matches of standing range queries one by one, without the engine.

For the demo's final check. It uses the reference text analysis and the exact geometry of the model,
but no indexes, kernels or services.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import orjson

from sirocco.loadgen.lines import texts_of
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import RangeQuery
from sirocco.model.text import tokens_of


def recount(
    batches: Sequence[ObjectColumns], queries: Sequence[RangeQuery]
) -> Counter[tuple[str, int]]:
    """Returns how often each (query id, object id) matches.

    Args:
        batches: The published objects.
        queries: Registered before the first of them, without a lifetime.
    """
    found: Counter[tuple[str, int]] = Counter()
    for batch in batches:
        texts = texts_of(batch.text, batch.text_offsets)
        attributes = texts_of(batch.attributes, batch.attribute_offsets)
        tokens: dict[int, list[str]] = {}
        for query in queries:
            inside = np.ones(len(batch), np.bool_)
            if query.region is not None:
                inside = query.region.contains(batch.lon, batch.lat)
            for row in np.flatnonzero(inside).tolist():
                if query.where is not None:
                    members = orjson.loads(attributes[row]) if attributes[row] else {}
                    if not query.where.matches(members):
                        continue
                if query.expression is not None:
                    if row not in tokens:
                        tokens[row] = tokens_of(texts[row])
                    if not query.expression.matches(tokens[row]):
                        continue
                found[query.id, int(batch.ids[row])] += 1
    return found
