"""`sirocco local`: a whole cluster as processes on this machine, with a real Kafka and Redis."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from sirocco.local.cluster import SERVICES, STATE, LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.keeper import keeper_process, start_keeper
from sirocco.local.process import LocalError, WrongUseError
from sirocco.local.redis import RedisServer
from sirocco.transport.errors import TopicMismatch

_NOTES = Console(stderr=True, highlight=False)

# What `up` starts of each service unless it is told otherwise. The parser leaves its options
# empty: to a cluster that is there already, what is said matters and what is not said does not.
_COUNTS = {"coordinator": 1, "merger": 1, "evaluator": 2, "router": 1}

# On a few processors fewer slots mean fewer, larger records and shorter ways (ADR 8).
_SLOTS = "8"

# Options of `up` that become settings of the services, and what these take without them.
_OPTIONS = {
    "scheme": ("SIROCCO_SCHEME", "qt-tree"),
    "slots": ("SIROCCO_SLOTS", "16"),
    "leaves": ("SIROCCO_LEAVES", "64"),
    "store": ("SIROCCO_STORE", "on"),
    "balance": ("SIROCCO_BALANCE", "on"),
    "sample": ("SIROCCO_SAMPLE", ""),
}


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

    up = steps.add_parser(
        "up",
        help="start what does not run, wait until all is ready",
        description="Starts what does not run and waits until all is ready. What was acknowledged "
        "stays in DIRECTORY over `down` and `up`; without that directory it begins anew.",
    )
    up.add_argument("--routers", type=int, help="processes (1)")
    up.add_argument("--evaluators", type=int, help="processes (2)")
    up.add_argument("--mergers", type=int, help="processes (1)")
    up.add_argument("--coordinators", type=int, help="processes (1)")
    up.add_argument("--scheme", help="how the workload is cut (qt-tree)")
    up.add_argument("--slots", type=int, help="number of slots, fixed at the first start (8)")
    up.add_argument("--leaves", type=int, help="number of leaves of the first map (64)")
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
    note = "starting the services …"
    with _stopped_on_failure() as started:
        if (directory / STATE).exists():
            cluster = LocalCluster.open(directory)
            _refuse_others(args, cluster)
            if all(one.running for one in cluster.processes):
                note = "it runs already; for other settings `sirocco local down` first"
            keeper_process(directory).stop()
            _start_servers(directory, cluster.settings.kafka, cluster.settings.redis, started)
        else:
            keeper_process(directory).stop()
            kafka, redis = _start_servers(directory, args.kafka, args.redis, started)
            cluster = LocalCluster(directory, _settings(args, kafka, redis), outlive=True)
        _NOTES.print(note)
        try:
            cluster.start()
        except LocalError as error:
            raise LocalError(f"{error}{_hint(error, args.directory)}") from None
    start_keeper(directory)
    _print_status(cluster, as_json=args.json)
    return 0


def _refuse_others(args: argparse.Namespace, cluster: LocalCluster) -> None:
    """Refuses options that say something else than what is there was started with.

    Raises:
        WrongUseError: There are such; the message names them, and what to do.
    """
    settings = cluster.settings
    counts = {
        service: count
        for service in _COUNTS
        if (count := getattr(args, f"{service}s")) not in (None, settings.counts[service])
    }
    others = [f"--{service}s {count}" for service, count in counts.items()]
    for option, (variable, default) in _OPTIONS.items():
        value = _value_of(args, option)
        if value not in (None, settings.options.get(variable, default)):
            others.append(f"--{option} {value}")
    for option, present in (("kafka", settings.kafka), ("redis", settings.redis)):
        if (value := getattr(args, option)) not in (None, present):
            others.append(f"--{option} {value}")
    if not others:
        return
    way = "`sirocco local down` first"
    if len(others) == len(counts):
        wanted = " ".join(f"{service}={count}" for service, count in counts.items())
        way = f"`sirocco local scale {wanted}` while it runs, or {way}"
    raise WrongUseError(
        f"the cluster in {cluster.directory} is there already, with settings of its own and "
        f"without {', '.join(others)}: {way}"
    )


def _value_of(args: argparse.Namespace, option: str) -> str | None:
    """What is said of an option, as the services find it in their environment."""
    value = getattr(args, option)
    if value is None:
        return None
    return str(value.resolve() if isinstance(value, Path) else value)


def _hint(error: LocalError, directory: Path) -> str:
    """What to do where the data from before do not go with what is asked for; empty elsewhere."""
    if f'"kind":"{TopicMismatch.__name__}"' not in str(error):
        return ""
    return (
        f"\n{directory} holds the data of a cluster with another number: give that number, or "
        f"begin anew, without the data: rm -r {directory}"
    )


def _settings(args: argparse.Namespace, kafka: str, redis: str) -> LocalClusterSettings:
    given = {service: getattr(args, f"{service}s") for service in _COUNTS}
    options = {"SIROCCO_SLOTS": _SLOTS} | {
        variable: value
        for option, (variable, _) in _OPTIONS.items()
        if (value := _value_of(args, option)) is not None
    }
    return LocalClusterSettings(
        cluster="local",
        kafka=kafka,
        redis=redis,
        archive=str(args.directory.resolve() / "archive"),
        counts={service: _COUNTS[service] if n is None else n for service, n in given.items()},
        options=options,
    )


@contextmanager
def _stopped_on_failure() -> Iterator[list[KafkaServer | RedisServer]]:
    """Gives a list for servers that are started; whoever fails leaves none of them behind."""
    started: list[KafkaServer | RedisServer] = []
    try:
        yield started
    except BaseException:
        for server in reversed(started):
            server.stop()
        raise


def _start_servers(
    directory: Path,
    kafka: str | None,
    redis: str | None,
    started: list[KafkaServer | RedisServer],
) -> tuple[str, str]:
    """Starts own servers where no other is named, or where the named one is our own.

    Those that did not run before are added to `started`, before their start.
    """
    broker = KafkaServer(directory, outlive=True)
    if kafka is None or _is_own(directory / "kafka.properties", kafka):
        _begin(broker, "Kafka", started)
        kafka = broker.address
    store = RedisServer(directory, outlive=True)
    if redis is None or _is_own(directory / "redis.conf", redis.rpartition(":")[2].split("/")[0]):
        _begin(store, "Redis", started)
        redis = store.url
    return kafka, redis


def _begin(
    server: KafkaServer | RedisServer, name: str, started: list[KafkaServer | RedisServer]
) -> None:
    if server.process.pid is None:
        _NOTES.print(f"starting {name} …")
        started.append(server)
    server.start()


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
