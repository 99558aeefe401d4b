"""Records of `control` and progress with impossible positions are void for all readers."""

from __future__ import annotations

import pytest

from sirocco.codec.control import read_declaration
from sirocco.codec.hops import decode
from sirocco.internal_api.v1 import control_service_pb2 as pb
from sirocco.internal_api.v1.delivery_service_pb2 import ProgressRequest
from sirocco.model.errors import InvalidArgument

FAR = 1 << 43


def taken(**members: object) -> pb.DeclareRequest:
    usual = {"topic": "slots", "partition": 1, "epoch": 3, "offset": 7, "name": "x"}
    return pb.DeclareRequest(checkpoint_taken=pb.CheckpointTaken(**{**usual, **members}))  # type: ignore[arg-type]


HOSTILE = {
    "a checkpoint before the log": (taken(offset=-1), "offset"),
    "a checkpoint beyond all offsets": (taken(offset=FAR), "offset"),
    "a checkpoint of no epoch": (taken(epoch=-5), "epoch"),
    "a checkpoint of a partition that cannot be": (taken(partition=1 << 31), "partition"),
    "a checkpoint of an unknown topic": (taken(topic="deliveries"), "topic"),
    "a checkpoint of a negative map": (taken(map_version=-1), "map_version"),
    "a grant of a topic without owners": (
        pb.DeclareRequest(granted=pb.Granted(term=0, topic="control", partition=0, member="m")),
        "topic",
    ),
    "a skip of a negative offset": (
        pb.DeclareRequest(skipped=pb.Skipped(topic="slots", partition=0, offset=-1)),
        "offset",
    ),
    "an attempt that ends before it begins": (
        pb.DeclareRequest(attempted=pb.Attempted(topic="slots", partition=0, begin=7, end=6)),
        "end",
    ),
    "a copy of a negative version": (
        pb.DeclareRequest(map_copied=pb.MapCopied(partition=0, version=-1)),
        "version",
    ),
    "a switch to a far version": (
        pb.DeclareRequest(map_switched=pb.MapSwitched(term=0, version=1 << 60)),
        "version",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_declaration_of_a_place_that_cannot_be_is_refused(name: str) -> None:
    request, field = HOSTILE[name]
    with pytest.raises(InvalidArgument) as refused:
        read_declaration(request)
    assert refused.value.field == field


def test_usual_ones_are_read() -> None:
    assert read_declaration(taken()).offset == 7  # type: ignore[union-attr]
    assert read_declaration(taken(offset=(1 << 42) - 1)).offset == (1 << 42) - 1  # type: ignore[union-attr]


@pytest.mark.parametrize("offset", [-1, FAR])
def test_progress_to_an_offset_that_cannot_be_is_refused(offset: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        decode(ProgressRequest(input_offset=offset))
    assert refused.value.field == "input_offset"
