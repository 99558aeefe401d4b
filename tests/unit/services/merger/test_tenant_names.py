"""Names of queries without the tenant's prefix, row by row; sessions of tenants."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sirocco.model.access import Grant
from sirocco.protocol.contract.columns import QueryNames
from sirocco.services.merger.tenant_names import without_prefix
from sirocco.services.router.publish import session_of


def names(ids: list[str], specs: tuple[str, ...] | None) -> QueryNames:
    parts = [each.encode() for each in ids]
    return QueryNames(
        np.arange(len(ids), dtype=np.uint64),
        np.frombuffer(b"".join(parts), np.uint8),
        np.array([0, *np.cumsum([len(each) for each in parts])], np.int64),
        np.zeros(len(ids), np.uint32),
        ("acme:alerts",),
        specs,
    )


def texts(found: QueryNames) -> list[str]:
    whole, ends = found.ids.tobytes(), found.id_offsets.tolist()
    return [whole[a:b].decode() for a, b in pairwise(ends)]


def test_each_loses_its_prefix_alone() -> None:
    own = ["q", "größe", "acme:q", "x" * 300]
    specs = tuple(
        f'{{"id":"acme:{each}","where":{{"id":"acme:q"}}}}' if each != "q" else "" for each in own
    )
    found = without_prefix(names([f"acme:{each}" for each in own], specs), "acme:")
    assert texts(found) == own
    assert found.subscribers == ("alerts",)
    assert found.specs == tuple(
        f'{{"id":"{each}","where":{{"id":"acme:q"}}}}' if each != "q" else "" for each in own
    )
    assert found.handles.tolist() == [0, 1, 2, 3]


def test_without_a_tenant_nothing_changes() -> None:
    given = names(["acme:q"], None)
    assert without_prefix(given, "") is given
    assert len(without_prefix(names([], None), "acme:")) == 0


def test_a_session_that_another_tenant_names_is_not_the_owner_s() -> None:
    grants = [Grant("token", tenant, frozenset({"publish"}), None) for tenant in ("acme", "evil")]
    own, other = (session_of(grant, 77) for grant in grants)
    assert len({own, other, 77, session_of(grants[0], 78)}) == 4
    assert session_of(Grant("another", "acme", frozenset(), None), 77) == own
    # As one without a tenant writes it.
    assert session_of(Grant("operator", "", frozenset(), None), 77) == 77
