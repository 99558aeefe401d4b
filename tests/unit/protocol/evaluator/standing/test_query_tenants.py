"""Which tenants queries of a slot belong to, as far as shares of the room are concerned."""

from __future__ import annotations

import numpy as np

from sirocco.index.standing.query_table import NamedQueries
from sirocco.model.objects import pack_bytes
from sirocco.protocol.evaluator.standing.tracked_queries import tenants_of


def test_queries_of_one_tenant_share_and_those_of_the_operator_do_not() -> None:
    ids, offsets = pack_bytes([b"acme:q1", b"q1", b"acme:q2", b"globex:q1", b"acme"])
    names = NamedQueries(np.arange(5, dtype=np.uint64), ids, offsets, np.zeros(5, np.int32))
    acme, operator, acme_again, globex, plain = tenants_of(names).tolist()
    assert acme == acme_again != globex
    assert (operator, plain) == (0, 0)
    assert 0 not in (acme, globex)
