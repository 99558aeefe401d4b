"""The answers of a secured release to clients it should refuse; runs in the client's pod.

    python -m tests.kubernetes.strangers --router HOST:PORT --ca FILE --token-file FILE
        --reader-token-file FILE --evaluator HOST:PORT

The first token may publish, the reader's may only subscribe. Prints one line of JSON: each attempt,
and the error that refused it.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
from sirocco_client import Client, PublishFailed, RangeQuery, Retry, SiroccoError, Tls

from sirocco.cli.terminal.remote import add_connection
from sirocco.internal_api.v1.load_service_pb2 import TellLoadsRequest
from sirocco.internal_api.v1.load_service_pb2_grpc import LoadServiceStub


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader-token-file", type=Path, required=True)
    parser.add_argument("--evaluator", required=True)
    add_connection(parser)
    args = parser.parse_args(arguments)
    authority = Tls(args.ca.read_bytes())
    token = args.token_file.read_text().strip()
    reader = args.reader_token_file.read_text().strip()

    def client(tls: Tls | None, bearer: str | None) -> Client:
        return Client(args.router, tls=tls, token=bearer, retry=Retry(attempts=1), timeout_s=20.0)

    tried = {
        "the owner of the token": lambda: client(authority, token).describe(),
        "in plain text": lambda: client(None, token).describe(),
        "who does not know the authority": lambda: client(Tls(), token).describe(),
        "without a token": lambda: client(authority, None).describe(),
        "with a guessed token": lambda: client(authority, "guessed").describe(),
        "a reader registers": lambda: client(authority, reader).register(
            RangeQuery(id="stranger", subscriber="stranger", text="fire")
        ),
        "a reader publishes": lambda: _publish(client(authority, reader)),
        "a client as a service": lambda: _report_loads(args.evaluator, args.ca.read_bytes(), token),
    }
    print(json.dumps({what: refusal(call) for what, call in tried.items()}))
    return 0


def refusal(call: Callable[[], object]) -> str:
    """Returns the name of the error that a call raises; empty if it succeeds."""
    try:
        call()
    except PublishFailed as error:
        return f"PublishFailed, {error.cause_code}"
    except SiroccoError as error:
        return type(error).__name__
    except grpc.RpcError as error:
        return str(error.code().name)  # type: ignore[attr-defined]
    except OSError:
        return "unreachable"
    return ""


def _publish(client: Client) -> None:
    publisher = client.publisher()
    publisher.publish({"id": "stranger", "lon": 1.0, "lat": 2.0, "text": "fire"})
    publisher.close()


def _report_loads(address: str, authority: bytes, token: str) -> None:
    """Sends an evaluator a request that only services may send, with all rights of a client."""
    host, _, port = address.rpartition(":")
    # The address is reachable: a refusal comes from the service.
    socket.create_connection((host, int(port)), timeout=10).close()
    options = (("grpc.ssl_target_name_override", "sirocco"),)
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), options) as channel:
        bearer = (("authorization", f"Bearer {token}"),)
        stub = LoadServiceStub(channel)
        stub.TellLoads(TellLoadsRequest(slots_only=True), timeout=10, metadata=bearer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
