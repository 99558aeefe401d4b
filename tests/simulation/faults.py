"""Faults and their times: drawn from the seed, by profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sirocco.protocol.contract.messages import Change, Installed, TrackedMemberSet
from tests.simulation.log import Delays
from tests.simulation.node import Node
from tests.simulation.services import SERVICES

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

# No faults before: the cluster starts.
CALM_MS = 1_500.0

# Longer than routers wait before they remove queries whose lifetime is over.
OUTAGE_MS = (62_000.0, 70_000.0)

# Share of the outages in which routers end; in the others they pause.
OUTAGE_ENDS = 0.3

SLOW = Delays(land=(1, 120), acknowledge=(1, 80), see=(1, 150), call=(1, 200), archive=(10, 2_000))

# Some checkpoints take longer than the time to the next one.
SLOW_ARCHIVE = Delays(archive=(5, 1_500))

# For a checkpoint with slices: most have one to three slices, and their state.
TORN_BLOBS_MAX = 4

# How long a checkpoint finds no room: less than the time to the next try, or some tries.
NO_ROOM_MS = (300.0, 14_000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The faults of a world.

    Attributes:
        mean_ms: kind of fault → mean time between two of them.
        services: the services that they hit.
        skew_ms: greatest deviation of a node's clock.
        duration_ms: clients begin all of their steps before.
        faults_ms: when faults end, if that is later.
        churn: how much more often queries change than usual.
        during: appends in the middle of which processes are hit; empty for all.
        appends_max: greatest number of these before a process is hit.
        pause_ms: bounds of pauses of processes; by default some are shorter than a lease, others so
            long that other processes take over meanwhile.
            some so long that others have taken over for a while.
        nodes_min: least number of nodes of each service.
        coded: share of the worlds in which records are sent as bytes.
        mixed: share of the worlds with queries of other kinds than range.
        coarse: share of the worlds with coarse clocks.
        kinds: of queries, drawn from in mixed worlds; "tracked" is one of them.
        rewords: share of the changes of queries that ask for other words, elsewhere.
        few_words: all objects and queries share a few words, and queries ask for two at once.
        patterned: share of the texts of queries that are phrases and beginnings of words.
        folded: share of the texts of queries to which accents do not matter.
        waiting: share of the tracked queries that have `dwell`, and of those with `leave_after`.
        queries: bounds of their number.
        removes: queries are removed for good soon after their registration.
        clock_ms: the step of coarse clocks.
        maps: share of the worlds in which the map changes.
        steps: share of the new maps that differ little from the one in force.
        storeless: share of the worlds with range queries alone in which nothing is stored for
            searches.
        searched: share of the worlds in which clients search.
        searches: bounds of their number.
        stops_copies: routers pause while they copy for a change of the map.
        slot_moves_ms: mean time between two moves of slots; 0: slots move only when they must.
        balance_ms: bounds of the length of a balancing round; None: slots are spread by count.
            slots.
        is_hot: most objects come from around one place, which changes after a while.
        strikes_plans: share of the plans during which a process ends or pauses.
        hands_all_over: an evaluator that drains keeps no slot while another evaluator stays.
        begins: share of the versions of queries with a given begin.
        poison: greatest number of objects that end every evaluator.
        recovery_ms: between the last fault and the end of all work: leases (4 s) and settling
            (1 s), twice if a coordinator has to be elected first, clients' timeouts, and catching
            up.
        checkpoints_ms: between two checkpoints of a Kafka partition; 0: the services' default.
        rivals: ids that collide with those of queries are registered, changed and removed as well.
        saves_slowly: blobs of a checkpoint are written one by one.
    """

    name: str
    mean_ms: dict[str, float] = field(default_factory=dict)
    services: tuple[str, ...] = SERVICES
    delays: Delays | None = None
    skew_ms: float = 200.0
    duration_ms: float = 25_000.0
    faults_ms: float = 0.0
    churn: int = 1
    nodes_min: int = 1
    pause_ms: tuple[float, float] | None = None
    during: tuple[type, ...] = ()
    appends_max: int = 8
    coded: float = 0.15
    mixed: float = 0.4
    coarse: float = 0.25
    kinds: tuple[str, ...] = ("range", "range", "knn", "knn", "tracked", "terms", "ranked")
    rewords: float = 1.0
    few_words: bool = False
    patterned: float = 0.0
    folded: float = 0.0
    waiting: float = 0.0
    queries: tuple[int, int] = (10, 35)
    removes: bool = False
    clock_ms: int = 50
    maps: float = 0.5
    steps: float = 0.0
    storeless: float = 0.5
    searched: float = 0.6
    searches: tuple[int, int] = (4, 16)
    stops_copies: bool = False
    slot_moves_ms: float = 0.0
    balance_ms: tuple[int, int] | None = None
    is_hot: bool = False
    strikes_plans: float = 0.0
    hands_all_over: bool = False
    begins: float = 0.0
    poison: int = 0
    recovery_ms: float = 60_000.0
    checkpoints_ms: int = 0
    saves_slowly: bool = False
    rivals: bool = False


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="calm", coded=0.5, duration_ms=8_000),
        Profile(name="slow", mean_ms={"spell": 1_500, "break": 2_000}, delays=SLOW),
        *(
            Profile(
                name=f"kill-{service}", mean_ms={"kill": 4_000, "break": 5_000}, services=(service,)
            )
            for service in SERVICES
        ),
        Profile(
            name="restart",
            mean_ms={"kill": 5_000, "drain": 3_500, "refuse": 4_000, "compact": 3_000},
        ),
        Profile(name="refuse", mean_ms={"refuse": 1_500, "break": 2_500}),
        Profile(name="zombie", mean_ms={"pause": 2_500, "break": 4_000, "spell": 4_000}),
        Profile(
            name="store", mean_ms={"lose": 4_000, "down": 6_000, "kill": 9_000, "pause": 9_000}
        ),
        Profile(
            name="fenced", mean_ms={"pause": 1_500}, services=("merger", "coordinator"), nodes_min=2
        ),
        Profile(
            name="moving",
            mean_ms={"pause": 3_000},
            services=("router",),
            duration_ms=40_000,
            churn=6,
            nodes_min=3,
            pause_ms=(6_500, 14_000),
            during=(Change, Installed, Installed),
        ),
        Profile(
            name="searching",
            mean_ms={"kill": 2_500, "pause": 5_000, "spell": 1_500},
            services=("evaluator", "evaluator", "merger"),
            nodes_min=2,
            mixed=0.0,
            searched=1.0,
            searches=(40, 80),
        ),
        Profile(name="changing", mean_ms={"spell": 3_000}, maps=1.0, churn=2, mixed=0.7),
        Profile(
            name="changing-kills",
            mean_ms={"kill": 2_500, "pause": 4_000, "break": 5_000, "compact": 4_000},
            maps=1.0,
            churn=3,
            skew_ms=1_000,
        ),
        Profile(
            name="changing-moving",
            mean_ms={"pause": 3_000},
            services=("router",),
            duration_ms=40_000,
            churn=6,
            nodes_min=3,
            pause_ms=(6_500, 14_000),
            during=(Change, Installed, Installed),
            maps=1.0,
            stops_copies=True,
        ),
        # Maps that differ by a leaf or a word: most queries are not looked at.
        Profile(name="stepping", mean_ms={"spell": 3_000}, maps=1.0, steps=0.9, churn=2, mixed=0.5),
        Profile(
            name="stepping-kills",
            mean_ms={"kill": 5_000, "pause": 5_000, "compact": 4_000},
            services=("router", "router", "evaluator"),
            duration_ms=40_000,
            maps=1.0,
            steps=0.9,
            churn=3,
            mixed=0.2,
        ),
        # Routers hold back what no query needs. Queries change seldom, so that their keywords are
        # seldom published again as a whole, and a map brings most of them to other slots.
        Profile(
            name="storeless",
            mean_ms={"spell": 3_000},
            maps=1.0,
            mixed=0.0,
            storeless=1.0,
            searched=0.0,
        ),
        Profile(
            name="balancing",
            mean_ms={"kill": 6_000, "pause": 6_000, "break": 6_000, "refuse": 8_000},
            services=("evaluator", "coordinator", "merger"),
            nodes_min=2,
            slot_moves_ms=700,
        ),
        # Owners of queries begin at checkpoints older than the records that compaction has removed.
        Profile(
            name="gaps",
            mean_ms={"kill": 8_000, "pause": 4_000, "full": 9_000, "compact": 1_000},
            services=("router",),
            duration_ms=50_000,
            churn=4,
            nodes_min=2,
            mixed=0.2,
            pause_ms=(6_500, 12_000),
            during=(Change, Installed, Installed),
            maps=1.0,
            searched=0.0,
        ),
        # Steps of slots that lag behind each other and change owners meanwhile, at equal times.
        Profile(
            name="steps",
            mean_ms={"scale": 2_500, "spell": 500, "pause": 6_000},
            services=("evaluator",),
            maps=0.0,
            nodes_min=2,
            mixed=1.0,
            coarse=0.7,
            kinds=("terms", "terms", "terms", "ranked", "range"),
            searched=0.0,
        ),
        # Queries change their region but not their words, while keyword nodes are rebuilt.
        Profile(
            name="rewording",
            mean_ms={"spell": 300},
            maps=1.0,
            churn=4,
            nodes_min=2,
            mixed=0.0,
            rewords=0.1,
            few_words=True,
            searched=0.0,
        ),
        Profile(name="phrases", mixed=0.5, patterned=0.6),
        Profile(name="accents", mixed=0.5, patterned=0.3, folded=0.6),
        # Steps at exactly the times at which objects arrive.
        Profile(
            name="ticks",
            mean_ms={"spell": 2_000},
            maps=0.0,
            duration_ms=8_000,
            mixed=1.0,
            coarse=1.0,
            clock_ms=250,
            kinds=("terms", "ranked", "range"),
            searched=0.0,
        ),
        # Registrations that paused routers repeat after the query's removal.
        Profile(
            name="forgetting",
            mean_ms={"pause": 1_500},
            services=("router",),
            maps=0.0,
            nodes_min=3,
            mixed=0.0,
            pause_ms=(6_500, 12_000),
            during=(Installed,),
            queries=(4, 12),
            removes=True,
            searched=0.0,
        ),
        # Changes that paused routers append when the query has been removed for good.
        Profile(
            name="late-changes",
            mean_ms={"pause": 1_500},
            services=("router",),
            maps=0.0,
            nodes_min=3,
            mixed=0.0,
            pause_ms=(9_000, 20_000),
            during=(Change,),
            queries=(12, 30),
            removes=True,
            searched=0.0,
        ),
        # No router for longer than queries outlast their lifetime, while objects wait.
        Profile(
            name="outage",
            mean_ms={"outage": 12_000, "kill": 6_000},
            services=("router",),
            delays=SLOW,
            faults_ms=110_000,
            nodes_min=2,
            mixed=0.2,
            maps=0.0,
            searched=0.0,
            queries=(30, 60),
        ),
        Profile(
            name="plans",
            mean_ms={"kill": 9_000, "pause": 9_000, "cut": 9_000, "scale": 9_000, "break": 9_000},
            services=("evaluator", "evaluator", "coordinator", "merger", "router"),
            maps=0.0,
            nodes_min=2,
            pause_ms=(500, 7_000),
            balance_ms=(300, 900),
            is_hot=True,
            strikes_plans=0.6,
        ),
        Profile(
            name="failover",
            mean_ms={"kill": 2_500, "pause": 4_000, "cut": 8_000, "compact": 4_000},
            services=("coordinator",),
            maps=0.3,
            nodes_min=2,
            pause_ms=(500, 7_000),
            balance_ms=(300, 900),
            is_hot=True,
            strikes_plans=0.6,
        ),
        Profile(
            name="scaling",
            mean_ms={"scale": 3_000, "spell": 6_000},
            services=("evaluator",),
            maps=0.3,
            nodes_min=2,
            balance_ms=(300, 900),
            is_hot=True,
            hands_all_over=True,
        ),
        Profile(
            name="storm",
            mean_ms={
                "kill": 6_000,
                "pause": 4_000,
                "drain": 8_000,
                "refuse": 5_000,
                "spell": 4_000,
                "break": 4_000,
                "lose": 12_000,
                "down": 15_000,
                "compact": 5_000,
            },
            skew_ms=3_000,
        ),
        Profile(
            name="beginnings",
            mean_ms={"kill": 6_000, "pause": 6_000, "break": 5_000, "scale": 8_000, "spell": 4_000},
            services=("evaluator", "evaluator", "router"),
            nodes_min=2,
            mixed=0.7,
            kinds=("range", "range", "knn", "tracked", "tracked", "terms"),
            begins=0.6,
            maps=0.7,
        ),
        # Clients ask for changes of ids whose hashes are those of other queries.
        Profile(
            name="colliding",
            mean_ms={"kill": 6_000, "pause": 5_000, "compact": 2_000, "break": 5_000},
            services=("router",),
            duration_ms=30_000,
            churn=4,
            nodes_min=2,
            mixed=0.2,
            pause_ms=(6_500, 12_000),
            during=(Change, Installed),
            queries=(8, 20),
            searched=0.0,
            rivals=True,
        ),
        # Objects that end each evaluator that matches them, one after the other.
        Profile(
            name="poison",
            mean_ms={"spell": 4_000, "compact": 6_000},
            mixed=0.0,
            searched=0.0,
            poison=2,
            # Five or six end for each slot that such an object reaches.
            recovery_ms=180_000,
        ),
        # Processes are hit when they have written a part of a checkpoint.
        Profile(
            name="torn",
            mean_ms={"tear": 700, "scale": 8_000, "kill": 8_000, "compact": 6_000},
            services=("evaluator", "evaluator", "evaluator", "router", "merger"),
            delays=SLOW_ARCHIVE,
            nodes_min=2,
            checkpoints_ms=2_500,
            saves_slowly=True,
        ),
        # A few queries track members, and start and end: members are forgotten and tracked again.
        Profile(
            name="trackers",
            mean_ms={"kill": 9_000, "pause": 3_000},
            services=("router",),
            delays=SLOW,
            duration_ms=30_000,
            churn=2,
            nodes_min=3,
            pause_ms=(4_500, 12_000),
            during=(TrackedMemberSet,),
            appends_max=2,
            mixed=1.0,
            kinds=("tracked",),
            waiting=0.4,
            queries=(2, 5),
            maps=0.0,
            searched=0.0,
            checkpoints_ms=3_000,
        ),
    )
}


class Faults:
    """Causes faults at random times until it is stopped."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile
        self._scheduler = cluster.scheduler
        self.is_over = False
        # Until when no router that has ended is replaced.
        self.outage_until_ms = 0.0
        strikes: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "drain": self._drain,
            "pause": self._pause,
            "refuse": self._refuse,
            "spell": self._spell,
            "break": self._break,
            "lose": cluster.store.lose,
            "down": self._down,
            "compact": self._compact,
            "full": self._full,
            "cut": self._cut,
            "scale": self._scale,
            "outage": self._outage,
            "tear": self._tear,
        }
        for kind, mean_ms in profile.mean_ms.items():
            self._plan(kind, mean_ms, strikes[kind], CALM_MS)

    def heal(self) -> None:
        """Ends all faults; paused processes continue."""
        self.is_over = True
        for node in self._cluster.nodes:
            node.heal()
        self._cluster.store.heal()
        self._cluster.parts.archive.full_until_ms = 0.0

    def map_changes(self) -> None:
        """Called when a change of the map begins."""
        if not self._profile.stops_copies:
            return
        for node in self._cluster.of("router"):
            if not node.is_paused and self._scheduler.dice.random() < 0.5:
                node.strike_during((Installed,), partial(self._stop, node))

    def plan_begins(self, leader: Node, hands: set[str]) -> None:
        """Called when the execution of a plan begins.

        Args:
            leader: the coordinator that decided it.
            hands: evaluators that lose or gain slots by it.
        """
        dice = self._scheduler.dice
        if self.is_over or dice.random() >= self._profile.strikes_plans:
            return
        nodes = [node for node in self._cluster.of("evaluator") if node.member in hands]
        victim = dice.choice([leader, leader, *nodes])
        strike = dice.choice([partial(self._end, victim), partial(self._stop, victim)])
        self._cluster.events["struck during a plan"] += 1
        # Between two requests, while a map is copied, or while slots are loaded.
        self._scheduler.after(dice.choice([1, 10, 100, 1_000]) * dice.random(), strike)

    def _plan(self, kind: str, mean_ms: float, strike: Callable[[], None], least_ms: float) -> None:
        def run() -> None:
            if not self.is_over:
                self._cluster.events[kind] += 1
                strike()
                self._plan(kind, mean_ms, strike, 0)

        self._scheduler.after(least_ms + self._scheduler.dice.expovariate(1 / mean_ms), run)

    def _victim(self) -> Node | None:
        service = self._scheduler.dice.choice(self._profile.services)
        nodes = [node for node in self._cluster.of(service) if not node.is_paused]
        return self._scheduler.dice.choice(nodes) if nodes else None

    def _kill(self) -> None:
        node = self._victim()
        if node is None:
            return
        if self._scheduler.dice.random() < 0.5:
            self._strike_during(node, partial(self._end, node))
        else:
            node.kill("killed")

    def _strike_during(self, node: Node, strike: Callable[[], None]) -> None:
        node.strike_during(self._profile.during, strike, self._profile.appends_max)

    def _end(self, node: Node) -> None:
        if not self.is_over:
            node.kill("killed during appends")

    def _drain(self) -> None:
        node = self._victim()
        if node is not None:
            node.drain()

    def _pause(self) -> None:
        node = self._victim()
        if node is None:
            return
        if self._scheduler.dice.random() < 0.5:
            self._strike_during(node, partial(self._stop, node))
        else:
            self._stop(node)

    def _stop(self, node: Node) -> None:
        if not self.is_over and not node.is_paused:
            node.pause()
            is_short = self._scheduler.dice.random() < 0.4
            bounds_ms = self._profile.pause_ms or ((200, 4_000) if is_short else (5_000, 15_000))
            self._scheduler.after(self._scheduler.between(*bounds_ms), node.resume)

    def _outage(self) -> None:
        """Pauses or ends all routers for long; one before the others, so that objects wait."""
        now_ms = self._scheduler.now_ms
        if self.outage_until_ms or now_ms > self._profile.duration_ms:
            return
        ends = self._scheduler.dice.random() < OUTAGE_ENDS
        self.outage_until_ms = now_ms + self._scheduler.between(*OUTAGE_MS)
        routers: Sequence[Node | None] = self._cluster.of("router") or [None]
        first, *others = routers

        def leave(nodes: Sequence[Node | None]) -> None:
            for node in nodes:
                if node is not None and ends:
                    node.kill("outage")
                elif node is not None:
                    node.pause()
                    back_ms = self.outage_until_ms + self._scheduler.between(0, 3_000)
                    self._scheduler.at(back_ms, node.resume)

        leave([first])
        self._scheduler.after(self._scheduler.between(300, 4_000), lambda: leave(others))

    def _cut(self) -> None:
        """Isolates a process: it reaches only the log, and no other process reaches it."""
        node = self._victim()
        if node is not None:
            until_ms = self._scheduler.now_ms + self._scheduler.between(300, 9_000)
            self._cluster.store.cut_until_ms[node.member] = until_ms

    def _scale(self) -> None:
        """Changes the wanted number of evaluators."""
        wanted = self._scheduler.dice.randint(1, 4)
        self._cluster.wanted["evaluator"] = wanted
        present = self._cluster.of("evaluator")
        for _ in range(wanted - len(present)):
            self._cluster.start("evaluator")
        for node in present[wanted:]:
            node.drain()

    def _refuse(self) -> None:
        node = self._victim()
        if node is not None:
            node.refuse_append()

    def _spell(self) -> None:
        keys = self._cluster.log.keys()
        for key in self._scheduler.dice.sample(keys, min(len(keys), 3)):
            until_ms = self._scheduler.now_ms + self._scheduler.between(200, 3_000)
            self._cluster.log.slow_until_ms[key] = until_ms

    def _break(self) -> None:
        self._scheduler.dice.choice(self._cluster.publishers).break_off()

    def _compact(self) -> None:
        self._cluster.log.compact_control()
        self._cluster.log.compact_registry()

    def _full(self) -> None:
        """Prevents checkpoints for longer than compaction waits."""
        until_ms = self._scheduler.now_ms + self._scheduler.between(15_000, 30_000)
        self._cluster.parts.archive.full_until_ms = until_ms

    def _tear(self) -> None:
        """Ends or pauses a process, or removes its room, when a part of a checkpoint is written."""
        node = self._victim()
        if node is None:
            return

        def fill() -> None:
            if not self.is_over:
                until_ms = self._scheduler.now_ms + self._scheduler.between(*NO_ROOM_MS)
                self._cluster.parts.archive.full_until_ms = until_ms

        strikes = {"ended": partial(self._end, node), "stopped": partial(self._stop, node)}
        kind = self._scheduler.dice.choice(["ended", "stopped", "full"])

        def strike() -> None:
            self._cluster.events[f"{node.service} during a checkpoint, {kind}"] += 1
            strikes.get(kind, fill)()

        node.strike_save(self._scheduler.dice.randint(1, TORN_BLOBS_MAX), strike)

    def _down(self) -> None:
        until_ms = self._scheduler.now_ms + self._scheduler.between(500, 8_000)
        self._cluster.store.down_until_ms = until_ms
        if self._scheduler.dice.random() < 0.5:
            self._cluster.store.lose()
