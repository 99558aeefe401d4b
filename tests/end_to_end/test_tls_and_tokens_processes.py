"""TLS and tokens between real processes, and what other users of the machine can see of them."""

from __future__ import annotations

import socket
from pathlib import Path

from sirocco_client import Client, RangeQuery, Tls

from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.model.access import Grant, digest_of, write_grant
from tests.end_to_end.under_load import cluster_of_two
from tests.support.certificates import Authority

TOKEN = "sirocco_of-the-test"
SCOPES = frozenset({"publish", "query", "subscribe", "search"})


def test_processes_use_tls_and_keep_secrets(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key, tokens = tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "tokens"
    authority.issue(certificate, key, "sirocco")
    tokens.write_text(write_grant(digest_of(TOKEN), Grant("test", "acme", SCOPES)))
    root = authority.certificate.read_bytes()
    options = {
        "SIROCCO_TLS_CERTIFICATE": str(certificate),
        "SIROCCO_TLS_KEY": str(key),
        "SIROCCO_TLS_CA": str(authority.certificate),
        "SIROCCO_TOKENS": str(tokens),
    }
    cluster = cluster_of_two("secured", kafka_server, redis_server, tmp_path / "run", **options)
    tls = Tls(root, server_name="sirocco")
    with cluster, Client(",".join(cluster.router_addresses), tls=tls, token=TOKEN) as client:
        with client.subscribe("alerts") as received:
            for number in range(8):
                client.register(RangeQuery(id=f"q{number}", subscriber="alerts", text="fire"))
            with client.publisher() as publisher:
                publisher.publish({"id": 1, "lon": 1.0, "lat": 2.0, "text": "fire"})
                position = publisher.flush().position_token
            found: set[str] = set()
            while len(found) < 8:
                batch = received.next_batch()
                assert batch is not None
                found |= {query for query, _ in batch.pairs()}
        question = RangeQuery(id="s", text="fire", mode="snapshot")
        assert len(list(client.search(question, position_token=position).objects)) == 1
        for address in cluster.router_addresses:
            refused_handshakes(address)
        # Any user of the machine can read the command line of a process.
        for process in cluster.processes:
            command = Path(f"/proc/{process.process.pid}/cmdline").read_text()
            assert "SIROCCO_" not in command
            assert process.service in command
        logs = [process.process.log_path.read_text() for process in cluster.processes]
    assert len(logs) == 8
    for log in logs:
        assert '"listening"' in log
        assert TOKEN not in log
        assert digest_of(TOKEN) not in log
        assert "PRIVATE KEY" not in log
        # Strangers who do not speak TLS leave no line each.
        assert [line for line in log.splitlines() if not line.startswith("{")] == []


def refused_handshakes(address: str) -> None:
    """Opens connections without TLS, until the server has closed each."""
    host, port = address.split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port)), 60) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stranger.recv(1_024):
                pass
