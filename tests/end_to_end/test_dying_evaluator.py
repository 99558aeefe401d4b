"""An evaluator dies during the stream, on the embedded log: all kinds and modes still agree.

On Kafka, where it is a process: `test_replay_kinds.py`.
"""

from __future__ import annotations

from typing import Any

from sirocco_client import Client, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.evaluator.service import EvaluatorService
from tests.end_to_end.moving_vehicles import moving_vehicles
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.end_to_end.test_history_and_stream import SUBSCRIBER, TIMEOUT_S, Publishing, Receiver
from tests.oracle import agrees, arrivals_ms

SEED = 20261122
SETTINGS = ClusterSettings(
    cluster="dying", slots=8, leaves=16, event_time=True, intake_partitions=1, retention_ms=None
)


def test_every_kind_and_mode_agrees_although_evaluators_die() -> None:
    # init
    objects = moving_vehicles(3_000, SEED)
    queries = random_queries_of_all_kinds(objects, 135, SEED, track="vehicle")
    arrivals = arrivals_ms(objects)
    with (
        EmbeddedCluster(SETTINGS, evaluators=4) as cluster,
        Client(cluster.router_address, timeout_s=TIMEOUT_S) as client,
    ):
        receiver = Receiver(client)
        standing = [
            query_from_json(query, SUBSCRIBER) for query in queries if query["mode"] == "continuous"
        ]
        results = list(client.register_many(standing, start_ms=arrivals[0]))
        assert not [result.error for result in results if result.error is not None]

        # test: two of four die, one after the other, with half of the objects in the past.
        publishing = Publishing(client, objects)
        publishing.start()
        for share in (0.4, 0.6):
            publishing.await_share(share)
            kill_evaluator(cluster)
        publishing.join(TIMEOUT_S)
        token = client.advance_time(arrivals[-1] + 1)
        lines = receiver.until(client.await_processed(token, timeout_s=TIMEOUT_S))
        lines += [search(client, query, token, arrivals[-1]) for query in queries]

    # check
    wrong = agrees([line for line in lines if line], objects, queries)
    assert not wrong, f"seed {SEED}, {len(wrong)} differences:\n" + "\n".join(wrong[:10])


def kill_evaluator(cluster: EmbeddedCluster) -> None:
    """Ends an evaluator at its next turn, without handover and without a checkpoint."""
    victim = next(one for one in cluster.services if isinstance(one, EvaluatorService))
    cluster.services.remove(victim)
    assert victim.machine.slots
    victim.worker.fail(RuntimeError("killed by the test"))
    victim.worker.stop(TIMEOUT_S)
    assert victim.failure is not None
    # Its lease and its servers end, as with a process.
    victim.stop()


def search(client: Client, query: dict[str, Any], token: str, now_ms: int) -> dict[str, Any]:
    """Returns the answer of a snapshot as a line; empty for other queries."""
    if query["mode"] != "snapshot":
        return {}
    asked = query_from_json(query, "")
    return client.search(asked, position_token=token, now_ms=now_ms).members()
