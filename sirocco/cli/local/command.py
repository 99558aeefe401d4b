"""`sirocco local`: a whole cluster as processes on this machine, with a real Kafka and Redis."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sirocco.cli.replay.command import SCHEMES
from sirocco.cli.terminal.libraries import has_gateway
from sirocco.cli.terminal.numbers import COUNT_GREATEST, count, whole
from sirocco.cli.terminal.paths import filled, naming, path
from sirocco.cli.terminal.remote import DIRECTORY
from sirocco.cli.terminal.status import CommandError
from sirocco.cli.terminal.terminal import note, print_json, print_lines
from sirocco.local.cluster import (
    ALL_SERVICES,
    GATEWAY,
    HOST,
    STATE,
    LocalCluster,
    LocalClusterSettings,
    alone,
    last_settings,
    stop_leftovers,
)
from sirocco.local.invocation import program
from sirocco.local.kafka import KafkaServer
from sirocco.local.keeper import keeper_process, start_keeper
from sirocco.local.process import LocalError, WrongUseError
from sirocco.local.redis import RedisServer
from sirocco.transport.errors import TopicMismatch

# Processes that `up` starts of each service by default. The parser leaves its options empty: for an
# existing cluster, only given options matter.
_COUNTS = {"coordinator": 1, "merger": 1, "evaluator": 2, "router": 1, GATEWAY: 1}

# On a few processors, fewer slots mean fewer, larger records and shorter paths (ADR 8).
_SLOTS = "8"

# Options of `up` that become settings of the services, and the defaults of these.
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
        "A keeper restarts services that end by themselves; `up` starts Kafka and Redis again. "
        "Process and log files: DIRECTORY/<service>-<n>.pid and .log.",
    )
    parser.add_argument("--directory", type=path, default=DIRECTORY, help="of the files (.run)")
    steps = parser.add_subparsers(required=True, metavar="STEP")

    up = steps.add_parser(
        "up",
        help="start what does not run, wait until all is ready",
        description="Starts what does not run and waits until all is ready. What was acknowledged, "
        "numbers of processes, settings and addresses stay in DIRECTORY over `down` and `up`; "
        "without that directory it starts afresh.",
    )
    up.add_argument("--routers", type=count, metavar="N", help="processes (1)")
    up.add_argument("--evaluators", type=count, metavar="N", help="processes (2)")
    up.add_argument("--mergers", type=count, metavar="N", help="processes (1)")
    up.add_argument("--coordinators", type=count, metavar="N", help="processes (1)")
    up.add_argument(
        "--gateways",
        type=whole(0),
        metavar="N",
        help="processes of the HTTP gateway (1; SIROCCO_HTTP, HOST:PORT, names the first one's "
        "port)",
    )
    up.add_argument("--scheme", choices=SCHEMES, help="how the workload is split (qt-tree)")
    up.add_argument("--slots", type=count, metavar="N", help="fixed at the first start (8)")
    up.add_argument("--leaves", type=count, metavar="N", help="of the first map (64)")
    up.add_argument("--sample", type=path, help="objects from which the first map is built")
    up.add_argument("--store", choices=("on", "off"), help="off: only standing range queries (on)")
    up.add_argument("--balance", choices=("on", "off"), help="off: slots by count, one map (on)")
    up.add_argument(
        "--kafka", type=filled, metavar="HOST:PORT", help="use this broker instead of starting one"
    )
    up.add_argument(
        "--redis", type=filled, metavar="URL", help="use this Redis instead of starting one"
    )
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
    kill.add_argument("name", type=filled, metavar="SERVICE-N", help="for example evaluator-0")
    kill.set_defaults(run=_kill)


def _wanted(text: str) -> tuple[str, int]:
    service, _, wanted = text.partition("=")
    try:
        if service in ALL_SERVICES:
            # Zero is refused with advice.
            return service, whole(0, COUNT_GREATEST)(wanted)
    except argparse.ArgumentTypeError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r:.60} is not SERVICE=N with SERVICE one of {', '.join(ALL_SERVICES)} and "
        f"N up to {COUNT_GREATEST}"
    )


def _up(args: argparse.Namespace) -> int:
    _check(args)
    with naming(args.directory), _alone(args):
        return _start(args)


@contextmanager
def _alone(args: argparse.Namespace) -> Iterator[None]:
    """Allows one command at a time to start or stop processes of a directory."""
    with alone(
        args.directory.resolve(),
        waits=lambda: note(f"waiting for another command at work in {args.directory} …"),
    ):
        yield


def _start(args: argparse.Namespace) -> int:
    directory: Path = args.directory.resolve()
    message = "starting the services …"
    with _stopped_on_failure() as started:
        if (directory / STATE).exists():
            cluster = LocalCluster.open(directory)
            _refuse_others(args, cluster)
            if all(one.running for one in cluster.processes):
                message = f"it runs already; for other settings `{_tool(args)} down` first"
            keeper_process(directory).stop()
            _start_servers(directory, cluster.settings.kafka, cluster.settings.redis, started)
        else:
            keeper_process(directory).stop()
            last = last_settings(directory)
            kafka, redis = _start_servers(
                directory, args.kafka or last.get("kafka"), args.redis or last.get("redis"), started
            )
            cluster = LocalCluster(directory, _settings(args, kafka, redis), outlive=True)
        note(message)
        try:
            cluster.start(lambda name: note(f"{name} is ready"))
        except LocalError as error:
            raise LocalError(f"{error}{_hint(error, args.directory)}") from None
    start_keeper(directory)
    _print_status(cluster, as_json=args.json)
    if not args.json:
        for address in cluster.gateway_addresses[:1]:
            print_lines("", f"console: http://{address}/")
            print_lines(f"export SIROCCO_HTTP=http://{address}")
        print_lines("", f"try: {program()} cluster{_connection(args, cluster)}")
    return 0


def _tool(args: argparse.Namespace) -> str:
    """Returns the command line prefix for this directory."""
    if args.directory == DIRECTORY:
        return f"{program()} local"
    return f"{program()} local --directory {shlex.quote(str(args.directory))}"


def _connection(args: argparse.Namespace, cluster: LocalCluster) -> str:
    """Returns the option by which commands find a cluster; empty if they find it by themselves."""
    return "" if args.directory == DIRECTORY else f" --router {cluster.router_addresses[0]}"


def _check(args: argparse.Namespace) -> None:
    """Refuses malformed addresses of servers, before anything is started for them."""
    host, _, port = (args.kafka or "localhost:9092").rpartition(":")
    if not host or not _is_port(port):
        raise CommandError(f"--kafka: {args.kafka!r:.60} is not HOST:PORT")
    if args.redis is not None:
        try:
            url = urlsplit(args.redis)
            is_whole = url.scheme in {"redis", "rediss"} and url.hostname and url.port != 0
        except ValueError:
            is_whole = False
        if not is_whole:
            # The value is not repeated: it may hold a password.
            raise CommandError("--redis: is not redis://[USER:PASSWORD@]HOST[:PORT][/DB]")
    if args.sample is not None:
        args.sample.open("rb").close()


def _is_port(text: str) -> bool:
    try:
        return bool(whole(1, 65_535)(text))
    except argparse.ArgumentTypeError:
        return False


def _refuse_others(args: argparse.Namespace, cluster: LocalCluster) -> None:
    """Refuses options that differ from those of the running cluster.

    Raises:
        WrongUseError: Some differ; the message names them, and what to do.
    """
    settings = cluster.settings
    counts = {
        service: wanted
        for service in _COUNTS
        if (wanted := getattr(args, f"{service}s")) not in (None, settings.counts.get(service, 0))
    }
    others = [f"--{service}s {wanted}" for service, wanted in counts.items()]
    for option, (variable, default) in _OPTIONS.items():
        value = _value_of(args, option)
        if value not in (None, settings.options.get(variable, default)):
            others.append(f"--{option} {value}")
    for option, present in (("kafka", settings.kafka), ("redis", settings.redis)):
        if (value := getattr(args, option)) not in (None, present):
            others.append(f"--{option} {value}")
    if not others:
        return
    way = f"`{_tool(args)} down` first"
    if len(others) == len(counts):
        changes = " ".join(f"{service}={wanted}" for service, wanted in counts.items())
        way = f"`{_tool(args)} scale {changes}` while it runs, or {way}"
    raise WrongUseError(
        f"the cluster in {cluster.directory} is there already, with settings of its own and "
        f"without {', '.join(others)}: {way}"
    )


def _value_of(args: argparse.Namespace, option: str) -> str | None:
    """Returns the value of an option, as in the services' environment."""
    value = getattr(args, option)
    if value is None:
        return None
    return str(value.resolve() if isinstance(value, Path) else value)


def _hint(error: LocalError, directory: Path) -> str:
    """Returns advice if existing data do not fit the request; empty otherwise."""
    if f'"kind":"{TopicMismatch.__name__}"' not in str(error):
        return ""
    return (
        f"\n{directory} holds the data of a cluster with another number: give that number, or "
        f"start afresh, without the data: rm -r {shlex.quote(str(directory))}"
    )


def _settings(args: argparse.Namespace, kafka: str, redis: str) -> LocalClusterSettings:
    directory = args.directory.resolve()
    # The previous composition; without one, or for given options, the defaults.
    last = last_settings(directory)
    counts = _COUNTS | last.get("counts", {})
    given = {service: getattr(args, f"{service}s") for service in _COUNTS}
    if given[GATEWAY] is None and not has_gateway():
        note("no HTTP gateway: pip install 'sirocco[gateway]'")
        given[GATEWAY] = 0
    options = {"SIROCCO_SLOTS": _SLOTS} | last.get("options", {})
    options |= {
        variable: value
        for option, (variable, _) in _OPTIONS.items()
        if (value := _value_of(args, option)) is not None
    }
    return LocalClusterSettings(
        cluster="local",
        kafka=kafka,
        redis=redis,
        archive=str(directory / "archive"),
        counts={service: counts[service] if n is None else n for service, n in given.items()},
        options=options,
        gateway_port=_gateway_port(),
    )


def _gateway_port() -> int:
    """Returns the port that SIROCCO_HTTP names, 0 for none.

    Raises:
        CommandError: It is no address of this machine.
    """
    named = os.environ.get("SIROCCO_HTTP", "")
    if not named:
        return 0
    host, _, port = named.removeprefix("http://").rstrip("/").rpartition(":")
    if host not in {"", "localhost", HOST} or not _is_port(port):
        raise CommandError(f"SIROCCO_HTTP: {named!r:.60} is not {HOST}:PORT")
    return int(port)


@contextmanager
def _stopped_on_failure() -> Iterator[list[KafkaServer | RedisServer]]:
    """Yields a list for started servers; a failure stops all of them."""
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
    """Starts own servers if no other is named, or if the named one is our own.

    Those that were not running are added to `started`, before their start.
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
        note(f"starting {name} …")
        started.append(server)
    server.start()


def _is_own(configuration: Path, address: str) -> bool:
    return configuration.exists() and address in configuration.read_text()


def _down(args: argparse.Namespace) -> int:
    directory: Path = args.directory.resolve()
    if not directory.is_dir():
        print_lines(f"nothing runs: there is no {args.directory}")
        return 0
    with _alone(args):
        return _stop(args)


def _stop(args: argparse.Namespace) -> int:
    directory: Path = args.directory.resolve()
    keeper_process(directory).stop()
    stopped: list[str] = []
    if (directory / STATE).exists():
        note("stopping the services …")
        try:
            cluster = LocalCluster.open(directory)
        except LocalError:
            # Damaged, for example by a full disk: its contents are lost, the processes still run.
            (directory / STATE).unlink()
        else:
            running = [one.name for one in cluster.processes if one.running]
            cluster.stop(remembers=True)
            stopped += reversed(running)
    broker = KafkaServer(directory, outlive=True)
    stopped += stop_leftovers(directory, _address_of(broker))
    servers: dict[str, RedisServer | KafkaServer] = {
        "redis": RedisServer(directory, outlive=True),
        "kafka": broker,
    }
    for name, server in servers.items():
        if server.process.pid is not None:
            stopped.append(name)
        server.stop()
    if not stopped:
        print_lines(f"nothing runs in {args.directory}")
        return 0
    print_lines(f"stopped {', '.join(stopped)}")
    print_lines(
        f"queries, objects, addresses and settings stay in {args.directory}: "
        f"`{_tool(args)} up` continues with them"
    )
    return 0


def _address_of(broker: KafkaServer) -> str | None:
    """Returns where a broker of this directory listens, or did; None where there was none."""
    try:
        return broker.address
    except (OSError, LocalError):
        return None


def _status(args: argparse.Namespace) -> int:
    cluster = LocalCluster.open(args.directory.resolve())
    _print_status(cluster, as_json=args.json)
    is_whole = all(one.running for one in cluster.processes)
    return 0 if is_whole and not ended_servers(cluster.directory) else 1


def ended_servers(directory: Path) -> list[str]:
    """Returns which of this directory's own servers ended although nobody stopped them."""
    servers = (KafkaServer(directory, outlive=True), RedisServer(directory, outlive=True))
    return [
        server.process.name
        for server in servers
        if server.process.pid_path.exists() and server.process.pid is None
    ]


def _scale(args: argparse.Namespace) -> int:
    directory: Path = args.directory.resolve()
    # Not earlier: there may be no directory.
    LocalCluster.open(directory)
    with _alone(args):
        cluster = LocalCluster.open(directory)
        for service, wanted in args.wanted:
            cluster.scale(service, wanted)
    _print_status(cluster, as_json=False)
    return 0


def _kill(args: argparse.Namespace) -> int:
    LocalCluster.open(args.directory.resolve()).kill(args.name)
    return 0


def _print_status(cluster: LocalCluster, *, as_json: bool) -> None:
    rows: dict[str, Mapping[str, Any]] = {
        one.name: {
            "pid": one.process.pid,
            "grpc": (one.addresses.grpc or None) if one.addresses else None,
            "http": one.addresses.http if one.addresses else None,
        }
        for one in cluster.processes
    }
    settings = cluster.settings
    if as_json:
        servers = {"cluster": settings.cluster, "kafka": settings.kafka, "redis": settings.redis}
        addresses = [f"http://{address}" for address in cluster.gateway_addresses[:1]]
        http = {"http": addresses[0]} if addresses else {}
        print_json(servers | http | {"processes": rows})
        return
    ended = ended_servers(cluster.directory)
    for name, address in (("kafka", settings.kafka), ("redis", settings.redis)):
        state = "  does not run: `up` starts it" if name in ended else ""
        print_lines(f"{name:<16}{address}{state}")
    for name, row in rows.items():
        state = f"pid {row['pid']}" if row["pid"] is not None else "does not run"
        grpc = "" if name.startswith(GATEWAY) else f"gRPC {row['grpc']}  "
        print_lines(f"{name:<16}{state:<14}{grpc}HTTP {row['http']}")
