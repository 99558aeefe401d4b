"""Ids with colliding hashes, on a running cluster: no caller reads or changes another's query."""

from __future__ import annotations

from sirocco_api.v1 import query_service_pb2

from tests.collisions import FOUND, PAIRS, ZEROS
from tests.support.plain_client import DEADLINE_S, PlainClient, query_message, refused

VICTIM = "acme:orders"
EVIL = FOUND[VICTIM]
REGION = {"rect": {"west": 0.0, "south": 0.0, "east": 2.0, "north": 2.0}}


def test_a_second_preimage_reaches_nothing(plain: PlainClient) -> None:
    revision = plain.register(query_message(VICTIM, "acme:s", region=REGION, text="coffee"))
    evil = query_message(EVIL, "evil:s", region=REGION)
    for router in (0, 1):
        status, details = refused(lambda router=router: plain.register(evil, router))
        assert (status, details.field) == ("ALREADY_EXISTS", "id")
        assert "choose another id" in details.message
        assert VICTIM not in details.message
        for call in (
            lambda: plain.update(evil),
            lambda: plain.get(EVIL),
            lambda: plain.unregister(EVIL),
        ):
            assert refused(call)[0] == "NOT_FOUND"
    found = plain.get(VICTIM)
    assert (found.query.id, found.query.subscriber, found.revision) == (VICTIM, "acme:s", revision)
    # One at a time: a removal makes room.
    plain.unregister(VICTIM)
    plain.register(evil)
    assert plain.get(EVIL).query.id == EVIL
    assert refused(lambda: plain.get(VICTIM))[0] == "NOT_FOUND"
    plain.unregister(EVIL)


def test_in_one_bulk_the_others_are_registered(plain: PlainClient) -> None:
    one, other = PAIRS[0]
    request = query_service_pb2.RegisterQueriesRequest(
        queries=[query_message(name, "s-bulk") for name in (one, other, "apart")]
    )
    (answer,) = plain.queries[0].RegisterQueries(iter([request]), timeout=DEADLINE_S)
    results = answer.results
    assert [result.error.code for result in results] == ["", "ALREADY_EXISTS", ""]
    assert results[1].error.field == "id"


def test_an_id_whose_hash_is_zero_works_like_any_other(plain: PlainClient) -> None:
    name = ZEROS[0]
    query = query_message(name, "s-zero", region=REGION, text="coffee")
    revision = plain.register(query)
    assert plain.register(query, 1) == revision
    assert plain.get(name).query.id == name
    later = plain.update(query_message(name, "s-zero", region=REGION, text="tea"))
    assert later > revision
    listed = plain.list(subscriber="s-zero").registered_queries
    assert [each.query.id for each in listed] == [name]
    plain.unregister(name)
    assert refused(lambda: plain.get(name))[0] == "NOT_FOUND"
    assert refused(lambda: plain.unregister(name))[0] == "NOT_FOUND"
