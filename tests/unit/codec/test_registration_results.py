"""Results of a bulk change: the bytes are those of the messages."""

from __future__ import annotations

import numpy as np
import pytest
from sirocco_api.v1.query_service_pb2 import RegisterQueriesResponse, RegistrationResult

from sirocco.codec.registration_results import write_results

EDGES = [0, 1, *(value for bits in range(7, 63, 7) for value in (2**bits - 1, 2**bits)), 2**63 - 1]


@pytest.mark.parametrize("revisions", [[], [0], [0, 0], [5], EDGES, EDGES[:4]])
def test_bytes_are_those_of_messages(revisions: list[int]) -> None:
    message = RegisterQueriesResponse(results=[RegistrationResult(revision=r) for r in revisions])
    assert write_results(np.array(revisions, np.int64)) == message.SerializeToString()


def test_random_revisions() -> None:
    revisions = np.random.default_rng(7).integers(0, 1 << 40, 1_000) >> np.arange(1_000) % 41
    read = RegisterQueriesResponse.FromString(write_results(revisions))
    assert [each.revision for each in read.results] == revisions.tolist()
