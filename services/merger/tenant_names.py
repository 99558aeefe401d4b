"""Query names as their tenant gave them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sirocco.protocol.contract.columns import QueryNames


def without_prefix(names: QueryNames, prefix: str) -> QueryNames:
    """Removes the tenant's prefix from all names.

    Args:
        names: names of one subscriber, and therefore of one tenant: all begin with the prefix.
        prefix: empty: nothing changes.
    """
    if not prefix or not len(names):
        return names
    width = len(prefix.encode())
    begins = names.id_offsets[:-1]
    is_kept = np.ones(len(names.ids), np.bool_)
    is_kept[(begins[:, None] + np.arange(width)).ravel()] = False
    specs = names.specs
    if specs is not None:
        # The id is first in the canonical form (`model.query.canonical`).
        specs = tuple(text.replace(f'{{"id":"{prefix}', '{"id":"', 1) for text in specs)
    return replace(
        names,
        ids=names.ids[is_kept],
        id_offsets=names.id_offsets - width * np.arange(len(names) + 1),
        subscribers=tuple(each.removeprefix(prefix) for each in names.subscribers),
        specs=specs,
    )
