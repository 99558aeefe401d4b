"""Messages that a merger sends to a subscriber with queries of several kinds."""

from __future__ import annotations

import numpy as np
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse

from sirocco.codec.columns import put_events, put_matches, put_names, put_objects
from sirocco.codec.lists import put_lists
from sirocco.protocol.contract.messages import Delivered
from tests.support.list_records import (
    ListVersion,
    Match,
    Ranked,
    Seen,
    Terms,
    found_of,
    knn_spec,
    ranked_spec,
    terms_spec,
    tracked_spec,
)
from tests.support.merger_cluster import MergerCluster

NEAR = ListVersion("near", knn_spec("near", 2))
WORDS = ListVersion("wörds", terms_spec("wörds", 3))
BEST = ListVersion("best", ranked_spec("best", 2))
TRACKED = ListVersion("tracked", tracked_spec("tracked"))


def sent_by_a_merger() -> list[Delivered]:
    """Returns the records of two windows, all of one subscriber."""
    seen = Seen("é", (1, 5), 90, 4, 0.0, (1, 0))
    best = Ranked(asked=BEST, at_ms=100, total=1, tokens=4, holders=(1, 0), seen=(seen,))
    windows = [
        [Match(NEAR, 1, 5.5), Match(NEAR, "näme", 7.25), Match(ListVersion("plain"), 3)],
        [Match(NEAR, 2, 1.125), Terms(WORDS, 100, (("東", 3), ("a", 4))), best],
    ]
    log = [
        found_of([(0, i, i + 1, 101 * i)], [(0, i, item) for item in items])  # type: ignore[attr-defined]
        for i, items in enumerate(windows)
    ]
    cluster = MergerCluster(log=log, slots=1)
    for end in (1, 2):
        cluster.read(end, np.random.default_rng(0))
        cluster.commit()
    return [message for message in cluster.written if isinstance(message, Delivered)]


def response_with(delivered: Delivered, cursor: str = "9") -> ReceiveResponse:
    response = ReceiveResponse(cursor=cursor)
    put_objects(response.objects, delivered.objects)
    put_events(response.events, delivered.events)
    put_names(response.queries, delivered.queries)
    put_matches(response.matches, delivered.matches)
    if delivered.lists is not None:
        put_lists(response.lists, delivered.lists)
    return response
