"""`sirocco local`: a whole cluster as processes on this machine, with a real Kafka and Redis."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from sirocco.local.cluster import SERVICES, STATE, LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.keeper import keeper_process, start_keeper
from sirocco.local.process import LocalError
from sirocco.local.redis import RedisServer

_NOTES = Console(stderr=True, highlight=False)


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "local",
        description="Runs all services as processes on this machine, with a real Kafka and Redis. "
        "A keeper restarts what ends by itself. Process and log files: DIRECTORY/<service>-<n>.pid "
        "and .log.",
    )
    parser.add_argument("--directory", type=Path, default=Path(".run"), help="of the files (.run)")
    steps = parser.add_subparsers(required=True, metavar="STEP")

    up = steps.add_parser("up", help="start what does not run, wait until all is ready")
    up.add_argument("--routers", type=int, default=1, help="processes (1)")
    up.add_argument("--evaluators", type=int, default=2, help="processes (2)")
    up.add_argument("--mergers", type=int, default=1, help="processes (1)")
    up.add_argument("--coordinators", type=int, default=1, help="processes (1)")
    up.add_argument("--scheme", help="how the workload is cut (qt-tree)")
    up.add_argument("--slots", type=int, help="number of slots, fixed at the first start")
    up.add_argument("--leaves", type=int, help="number of leaves of the first map")
    up.add_argument("--sample", type=Path, help="objects from which the first map is built")
    up.add_argument("--store", choices=("on", "off"), help="off: standing range queries alone (on)")
    up.add_argument("--balance", choices=("on", "off"), help="off: slots by count, one map (on)")
    up.add_argument("--kafka", metavar="HOST:PORT", help="use this broker instead of an own one")
    up.add_argument("--redis", metavar="URL", help="use this Redis instead of an own one")
    up.add_argument("--json", action="store_true", help="print the addresses as JSON")
    up.set_defaults(run=_up)

    steps.add_parser("down", help="stop all in reverse order").set_defaults(run=_down)

    status = steps.add_parser("status", help="what runs, and where it listens")
    status.add_argument("--json", action="store_true", help="as JSON")
    status.set_defaults(run=_status)

    scale = steps.add_parser("scale", help="add or drain processes, for example evaluator=5")
    scale.add_argument("wanted", nargs="+", metavar="SERVICE=N", type=_wanted)
    scale.set_defaults(run=_scale)

    kill = steps.add_parser("kill", help="end one process as a crash would; it is restarted")
    kill.add_argument("name", metavar="SERVICE-N", help="for example evaluator-0")
    kill.set_defaults(run=_kill)


def _wanted(text: str) -> tuple[str, int]:
    service, _, count = text.partition("=")
    if service not in SERVICES or not count.isdigit():
        listed = ", ".join(SERVICES)
        raise argparse.ArgumentTypeError(f"{text!r} is not SERVICE=N with SERVICE one of {listed}")
    return service, int(count)


def _up(args: argparse.Namespace) -> int:
    directory: Path = args.directory.resolve()
    keeper_process(directory).stop()
    if (directory / STATE).exists():
        cluster = LocalCluster.open(directory)
        _start_servers(directory, cluster.settings.kafka, cluster.settings.redis)
    else:
        kafka, redis = _start_servers(directory, args.kafka, args.redis)
        cluster = LocalCluster(directory, _settings(args, kafka, redis), outlive=True)
    _NOTES.print("starting the services …")
    cluster.start()
    start_keeper(directory)
    _print_status(cluster, as_json=args.json)
    return 0


def _settings(args: argparse.Namespace, kafka: str, redis: str) -> LocalClusterSettings:
    counts = {
        "coordinator": args.coordinators,
        "merger": args.mergers,
        "evaluator": args.evaluators,
        "router": args.routers,
    }
    options = {
        "SIROCCO_SCHEME": args.scheme,
        "SIROCCO_SLOTS": args.slots,
        "SIROCCO_LEAVES": args.leaves,
        "SIROCCO_STORE": args.store,
        "SIROCCO_BALANCE": args.balance,
        "SIROCCO_SAMPLE": args.sample and args.sample.resolve(),
    }
    return LocalClusterSettings(
        cluster="local",
        kafka=kafka,
        redis=redis,
        archive=str(args.directory.resolve() / "archive"),
        counts=counts,
        options={name: str(value) for name, value in options.items() if value is not None},
    )


def _start_servers(directory: Path, kafka: str | None, redis: str | None) -> tuple[str, str]:
    """Starts own servers where no other is named, or where the named one is our own."""
    broker = KafkaServer(directory, outlive=True)
    if kafka is None or _is_own(directory / "kafka.properties", kafka):
        _NOTES.print("starting Kafka …")
        broker.start()
        kafka = broker.address
    store = RedisServer(directory, outlive=True)
    if redis is None or _is_own(directory / "redis.conf", redis.rpartition(":")[2].split("/")[0]):
        _NOTES.print("starting Redis …")
        store.start()
        redis = store.url
    return kafka, redis


def _is_own(configuration: Path, address: str) -> bool:
    return configuration.exists() and address in configuration.read_text()


def _down(args: argparse.Namespace) -> int:
    directory: Path = args.directory.resolve()
    if not directory.is_dir():
        print("nothing runs", file=sys.stderr)
        return 0
    keeper_process(directory).stop()
    try:
        LocalCluster.open(directory).stop()
    except LocalError:
        print("no services run", file=sys.stderr)
    RedisServer(directory, outlive=True).stop()
    KafkaServer(directory, outlive=True).stop()
    return 0


def _status(args: argparse.Namespace) -> int:
    cluster = LocalCluster.open(args.directory.resolve())
    _print_status(cluster, as_json=args.json)
    return 0 if all(one.running for one in cluster.processes) else 1


def _scale(args: argparse.Namespace) -> int:
    cluster = LocalCluster.open(args.directory.resolve())
    for service, count in args.wanted:
        cluster.scale(service, count)
    _print_status(cluster, as_json=False)
    return 0


def _kill(args: argparse.Namespace) -> int:
    LocalCluster.open(args.directory.resolve()).kill(args.name)
    return 0


def _print_status(cluster: LocalCluster, *, as_json: bool) -> None:
    rows: dict[str, Mapping[str, Any]] = {
        one.name: {
            "pid": one.process.pid,
            "grpc": one.addresses.grpc if one.addresses else None,
            "http": one.addresses.http if one.addresses else None,
        }
        for one in cluster.processes
    }
    settings = cluster.settings
    if as_json:
        servers = {"cluster": settings.cluster, "kafka": settings.kafka, "redis": settings.redis}
        print(json.dumps(servers | {"processes": rows}))
        return
    print(f"{'kafka':<16}{settings.kafka}")
    print(f"{'redis':<16}{settings.redis}")
    for name, row in rows.items():
        state = f"pid {row['pid']}" if row["pid"] is not None else "does not run"
        print(f"{name:<16}{state:<14}gRPC {row['grpc']}  HTTP {row['http']}")
    if cluster.router_addresses:
        print(f"\ntry: sirocco cluster --router {cluster.router_addresses[0]}")
