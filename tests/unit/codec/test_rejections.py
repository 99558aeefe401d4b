"""Rejected objects, packed without a message object for each."""

from __future__ import annotations

from sirocco_api.v1.publish_service_pb2 import PublishResponse, Rejection

from sirocco.codec.errors import write_error
from sirocco.codec.rejections import pack_rejections
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.protocol.router.objects.publish_sessions import NUMBER_MAX

FAR = InvalidArgument("must be in [-180, 180]", field="lon")
OTHER = InvalidArgument("is no JSON: " + "x" * 400, field="attributes." + "ä" * 80)


def test_packed_rejections_are_those_that_messages_would_be() -> None:
    refused: list[tuple[int, SiroccoError]] = [(0, FAR), (1, OTHER), (3, FAR), (16_383, FAR)]
    for first_number in (1, 127, 128, 1 << 32, NUMBER_MAX - 16_384):
        response = PublishResponse(acknowledged_to=7)
        response.MergeFromString(pack_rejections(first_number, refused[:1]))
        response.MergeFromString(pack_rejections(first_number, refused[1:]))
        wanted = [
            Rejection(number=first_number + row, error=write_error(error)) for row, error in refused
        ]
        assert response == PublishResponse(acknowledged_to=7, rejections=wanted)
        # The message to the client is as short as before.
        assert len(response.SerializeToString()) == response.ByteSize()


def test_nothing_refused_is_nothing() -> None:
    assert pack_rejections(1, []) == b""
