"""The course of the demo: start, register, publish, show, recount."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Console
from rich.live import Live
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage
from sirocco_client import Client, NotificationBatch, Publisher, query_from_json

from sirocco.cli.demo.queries import demo_queries
from sirocco.cli.demo.recount import recount
from sirocco.cli.demo.view import DemoState, LeafLoad, Match, render
from sirocco.cli.replay.backends import Backend, Shape, memory_backend
from sirocco.cli.replay.run import await_processed
from sirocco.cli.terminal.libraries import has_gateway
from sirocco.cli.terminal.status import ExitCode
from sirocco.cli.terminal.terminal import console as console_of
from sirocco.cli.terminal.terminal import print_lines
from sirocco.codec.columns import put_objects
from sirocco.loadgen.latency import SendTimes
from sirocco.loadgen.lines import object_lines
from sirocco.loadgen.pace import Pace
from sirocco.loadgen.places import city_objects, load_cities
from sirocco.loadgen.posts import PostsShape, WorldPosts
from sirocco.loadgen.receiver import Receiver
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import RangeQuery, parse_query

_SUBSCRIBER = "demo"
_SAMPLE_POSTS = 5_000
# New Year's Day 2026, noon in London: morning in the Americas, evening in Asia.
_START_MS = 1_767_268_800_000
_LOOK_S = 0.5
# Interval of status lines in a plain log.
_STATUS_S = 5.0


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """Length and size of the demo.

    Attributes:
        seconds: Length of the stream.
        posts_per_s: Rate of the stream.
        seed: Seed of the posts.
        evaluators: Number of evaluators.
        browser: Whether the console is served.
    """

    seconds: float = 25.0
    posts_per_s: float = 3_000.0
    seed: int = 42
    evaluators: int = 2
    browser: bool = True


def run_demo(settings: DemoSettings) -> int:
    """Runs the demo; returns the exit status: 0 if the recount agrees."""
    console = console_of()
    console.print("loading the cities of the world (GeoNames) …")
    demo = Demo(settings, console)
    console.print("starting router, evaluators, merger and coordinator in this process …")
    with _sample(settings) as sample:
        shape = Shape(evaluators=settings.evaluators, leaves=48, sample=sample)
        begin_s = time.monotonic()
        with memory_backend(shape) as backend, Client(backend.router_address) as client:
            console.print(f"… ready after {time.monotonic() - begin_s:.1f} s")
            with _served(settings, backend.router_address) as address:
                if address:
                    demo.show_address(address)
                demo.run(client)
            demo.note_usage(backend)
    return demo.finish()


@contextlib.contextmanager
def _served(settings: DemoSettings, routers: str) -> Iterator[str]:
    """Serves the console meanwhile, and yields its address; empty without one."""
    if not settings.browser or not has_gateway():
        yield ""
        return
    from sirocco.services.gateway.server import Gateway  # noqa: PLC0415 - an extra, and slow
    from sirocco.services.gateway.settings import GatewaySettings  # noqa: PLC0415

    gateway = Gateway(GatewaySettings(routers=routers))
    gateway.start()
    try:
        yield f"http://{gateway.address}/?subscriber={_SUBSCRIBER}"
    finally:
        gateway.stop()


@contextlib.contextmanager
def _sample(settings: DemoSettings) -> Iterator[Path]:
    """Yields a file with posts of another seed, from which the map is built."""
    world = WorldPosts(settings.seed + 1)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        for batch in world.batches(_SAMPLE_POSTS):
            file.write(b"".join(line + b"\n" for line in object_lines(batch)))
        file.flush()
        yield Path(file.name)


class Demo:
    """One run.

    Args:
        settings: Length and size of the demo.
        console: The output; a terminal gets the live view, other outputs plain lines.
    """

    def __init__(self, settings: DemoSettings, console: Console) -> None:
        self._settings = settings
        self._console = console
        self._live = console.is_terminal and not console.is_dumb_terminal
        self._members = demo_queries()
        self._state = DemoState(seconds_total=settings.seconds)
        self._state.by_query = {members["id"]: 0 for members in self._members}
        self._cities = city_objects(load_cities())
        shape = PostsShape(
            posts_per_s=settings.posts_per_s,
            event_share=0.2,
            events_per_min=900.0,
            event_decay_s=3.0,
        )
        self._posts = WorldPosts(settings.seed, shape, start_ms=_START_MS)
        self._published: list[ObjectColumns] = []
        self._sent = SendTimes()
        self._found: Counter[tuple[str, int]] = Counter()
        self._leaf_objects: dict[int, int] = {}
        self._cpu = ""

    def show_address(self, address: str) -> None:
        """Prints where the console is, also above the live view."""
        self._state.address = address
        self._console.print(f"the same on a map, while it lasts: {address}", soft_wrap=True)

    def run(self, client: Client) -> None:
        """Registers, publishes and shows until everything is processed."""
        for result in client.register_many(
            query_from_json(members, _SUBSCRIBER) for members in self._members
        ):
            if result.error is not None:
                raise result.error
        receiver = Receiver(client.subscribe(_SUBSCRIBER), self._sent, self._take)
        receiver.start()
        stopping = threading.Event()
        watch = threading.Thread(target=self._watch, args=(client, receiver, stopping))
        try:
            with self._view(), client.publisher() as publisher:
                watch.start()
                self._state.stage = "cities of the world"
                self._publish(publisher, _parts(self._cities, 2_000), Pace(None))
                self._state.stage = "posts"
                self._stream(publisher)
                await_processed(client, publisher, receiver)
        finally:
            stopping.set()
            watch.join()
            receiver.stop()
        self._state.latency_ms = receiver.latency.summary_ms()

    def note_usage(self, backend: Backend) -> None:
        """Keeps the processor times for the summary."""
        used = sorted(backend.cpu_seconds().items())
        self._cpu = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in used)

    def finish(self) -> int:
        """Recounts all matches, prints the summary; returns the exit status."""
        state, latency = self._state, self._state.latency_ms
        self._console.print()
        self._console.print(
            f"{state.published:,} objects published, {state.notified:,} notifications, "
            f"latency p50 {latency['p50']:.0f} ms, p99 {latency['p99']:.0f} ms"
        )
        self._console.print(f"processor time: {self._cpu}")
        for name, count in state.by_query.items():
            self._console.print(f"  {name:<40}{count:>6,}")
        self._console.print("counting all matches again by brute force …")
        queries = map(parse_query, self._members)
        wanted = recount(self._published, [q for q in queries if isinstance(q, RangeQuery)])
        if wanted == self._found:
            self._console.print(
                f"The recount agrees: {wanted.total():,} matches, each notified exactly once."
            )
            return ExitCode.OK
        missing, extra = wanted - self._found, self._found - wanted
        self._console.print(
            f"The recount DISAGREES: {missing.total():,} matches are missing, "
            f"{extra.total():,} are too many; for example {[*missing, *extra][:3]}."
        )
        return ExitCode.UNEXPECTED

    def _view(self) -> contextlib.AbstractContextManager[object]:
        if not self._live:
            return contextlib.nullcontext()
        return Live(
            get_renderable=lambda: render(self._state),
            console=self._console,
            refresh_per_second=5,
            screen=True,
        )

    # --- publishing

    def _stream(self, publisher: Publisher) -> None:
        pace = Pace(self._settings.posts_per_s)
        rows = pace.batch_rows(1_000)
        count = int(self._settings.seconds * self._settings.posts_per_s)
        self._publish(publisher, self._posts.batches(count, rows), pace)

    def _publish(self, publisher: Publisher, batches: Iterable[ObjectColumns], pace: Pace) -> None:
        for batch in batches:
            pace.wait(len(batch))
            message = ObjectsMessage()
            put_objects(message, batch)
            self._sent.add(self._state.published + 1, time.monotonic())
            publisher.publish_columns(message)
            self._published.append(batch)
            self._state.published += len(batch)

    # --- what the threads do

    def _take(self, batch: NotificationBatch) -> None:
        """Records the matches of a batch, in the receiver's thread."""
        # People may publish objects from the console; those have names.
        self._found.update((query, one) for query, one in batch.pairs() if isinstance(one, int))
        state = self._state
        state.notified += len(batch)
        for query, row in zip(batch.match_queries, batch.match_objects, strict=True):
            name = batch.query_ids[query]
            state.by_query[name] += 1
            attributes = orjson.loads(batch.attributes_json[row] or b"{}")
            text = batch.texts[row]
            place = attributes.get("place") or text.partition(" ·")[0]
            match = Match(
                query=name,
                place=f"{place}, {attributes.get('country', '')}",
                lon=batch.lon[row],
                lat=batch.lat[row],
                text=text,
            )
            state.matches.append(match)
            if not self._live:
                print_lines(match.line())

    def _watch(self, client: Client, receiver: Receiver, stopping: threading.Event) -> None:
        """Updates the figures until asked to stop."""
        begin_s = status_s = time.monotonic()
        before, before_s = 0, begin_s
        while not stopping.wait(_LOOK_S):
            now_s = time.monotonic()
            state = self._state
            state.seconds = now_s - begin_s
            state.published_per_s = (state.published - before) / (now_s - before_s)
            before, before_s = state.published, now_s
            state.latency_ms = receiver.latency.summary_ms()
            self._look_at_leaves(client)
            if not self._live and now_s - status_s >= _STATUS_S:
                status_s = now_s
                print_lines(
                    f"-- {state.seconds:.0f} s: {state.published:,} objects, "
                    f"{state.published_per_s:,.0f}/s, {state.notified:,} notifications, "
                    f"latency p50 {state.latency_ms['p50']:.0f} ms "
                    f"p99 {state.latency_ms['p99']:.0f} ms"
                )

    def _look_at_leaves(self, client: Client) -> None:
        found = client.describe(leaves=True)
        self._state.owners = {
            one.partition: one.member for one in found.ownerships if one.topic == "slots"
        }
        loads = []
        for leaf in found.leaves:
            grown = leaf.objects - self._leaf_objects.get(leaf.id, 0)
            self._leaf_objects[leaf.id] = leaf.objects
            loads.append(
                LeafLoad(leaf.slot, leaf.west, leaf.south, leaf.east, leaf.north, float(grown))
            )
        self._state.leaves = loads


def _parts(whole: ObjectColumns, rows: int) -> Iterator[ObjectColumns]:
    for start in range(0, len(whole), rows):
        yield whole.slice(start, start + rows)
