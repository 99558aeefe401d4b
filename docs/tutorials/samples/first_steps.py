"""Registers a query, publishes an object, and prints the notification."""

from pathlib import Path

from sirocco_client import Circle, Client, RangeQuery

from sirocco.local.cluster import routers_of

# The router that `make up` started here; elsewhere write its address: "router.example.org:7070".
ROUTER = ",".join(routers_of(Path(".run")))

with Client(ROUTER) as client, client.subscribe("python") as notifications:
    client.register(
        RangeQuery(
            id="canal-fire",
            subscriber="python",
            region=Circle(lon=2.36, lat=48.86, radius_m=2_000),
            text="fire AND NOT drill",
        )
    )
    with client.publisher() as publisher:
        publisher.publish({"id": 5, "lon": 2.36, "lat": 48.86, "text": "Big fire near the canal"})
    for each in notifications:
        print(each.query, each.object.id, each.object.text)
        break
    client.unregister("canal-fire")
