"""Uses a client on the oldest grpcio and protobuf; needs an environment with nothing else.

.cache/oldest/bin/python tests/unit/packages/oldest_pair.py GRPCIO PROTOBUF
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import google.protobuf
import grpc
import sirocco_api.v1
import sirocco_client
from sirocco_client import Circle, Client, Notification, RangeQuery

from tests.support.fake_cluster import FakeCluster


def import_all() -> int:
    """Imports each module of both packages; returns how many."""
    names = [
        name
        for package in (sirocco_api.v1, sirocco_client)
        for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for name in names:
        importlib.import_module(name)
    return len(names)


def register_and_receive() -> None:
    """Registers a query, publishes an object and receives it."""
    cluster = FakeCluster()
    try:
        with Client(cluster.router) as client:
            query = RangeQuery(id="q", subscriber="s", region=Circle(1, 2, 300), text="tea")
            client.register(query)
            assert client.get("q").query == query
            with client.publisher() as publisher:
                publisher.publish({"id": "o", "lon": 1.0, "lat": 2.0, "text": "Tea", "n": 7})
            cluster.deliver(("q", "o"))
            with client.subscribe("s", "0") as notifications:
                found = next(iter(notifications))
            assert isinstance(found, Notification)
            assert (found.query, found.object.id) == ("q", "o")
    finally:
        cluster.stop()


if __name__ == "__main__":
    versions = [grpc.__version__, google.protobuf.__version__]
    assert versions == sys.argv[1:], versions
    modules = import_all()
    register_and_receive()
    print(f"{modules} modules of {sirocco_client.__file__}")
