"""One simulated cluster: world, nodes, clients, faults, and the final checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sirocco.protocol.contract.effects import RecoveredDefinition, RegistryRecords
from sirocco.protocol.contract.messages import (
    DELIVERIES,
    INTAKE,
    NO_REVISION,
    REGISTRY,
    SLOTS,
    Change,
    Progress,
)
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.contract.record_sizes import partition_of
from sirocco.protocol.coordinator.machine import SERVICE_OF_TOPIC
from tests.collisions import PAIRS
from tests.simulation.balancers import Balancers
from tests.simulation.checkpoint_steps import unreadable
from tests.simulation.clients import Publisher, QueryOwner, Rival, Subscriber
from tests.simulation.faults import PROFILES, Faults, Profile
from tests.simulation.ledger import BrokenPromiseError, Ledger
from tests.simulation.log import Delays, SimLog
from tests.simulation.map_maker import MapMaker
from tests.simulation.node import SOUND, Node, Parts, Planted
from tests.simulation.poison import poisoned, poisonous
from tests.simulation.registry_truth import unpublished
from tests.simulation.scheduler import Scheduler
from tests.simulation.searchers import Searchers
from tests.simulation.services import (
    SERVICES,
    CoordinatorNode,
    EvaluatorNode,
    RouterNode,
    new_node,
)
from tests.simulation.slot_mover import SlotMover
from tests.simulation.store import SimArchive, SimStore
from tests.simulation.world import make_world

# How often routers look for records that the registry has to repeat.
RECALL_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a seed."""

    seed: int
    profile: str
    virtual_ms: float
    objects: int
    notifications: int
    events: Counter[str]


class Cluster:
    """The services as nodes; a node that ends is replaced."""

    def __init__(self, seed: int, profile: Profile, planted: Planted = SOUND) -> None:
        self.seed = seed
        self.profile = profile
        self.scheduler = Scheduler(seed)
        dice = self.scheduler.dice
        self.world = make_world(seed, profile)
        delays = profile.delays or Delays()
        log = SimLog(self.scheduler, delays, is_coded=dice.random() < profile.coded)
        self.log = log
        self.store = SimStore(self.scheduler)
        # In some worlds clocks are so coarse that many events have one time.
        clock_ms = profile.clock_ms if dice.random() < profile.coarse else 1
        archive = SimArchive(is_slow=profile.saves_slowly)
        self.parts = Parts(
            log=log, store=self.store, archive=archive, planted=planted, clock_ms=clock_ms
        )
        self.ledger = Ledger(log, self.world)
        self.ledger.poison = poisonous(seed, profile.poison, self.world.streams)
        self.events: Counter[str] = Counter()
        self.nodes: list[Node] = []
        self._started: Counter[str] = Counter()
        least = 1 if profile.balance_ms is None else 2
        self.wanted = {"coordinator": dice.randint(least, 2)} | {
            service: dice.randint(profile.nodes_min, 3) for service in SERVICES[1:]
        }
        for service, count in self.wanted.items():
            for _ in range(count):
                self.scheduler.after(
                    self.scheduler.between(0, 400), lambda service=service: self.start(service)
                )
        shape = self.world.shape
        self.publishers = [
            Publisher(self.scheduler, log, self, self.ledger, stream)
            for stream in self.world.streams
        ]
        self.owners = [
            QueryOwner(
                self.scheduler,
                log,
                self,
                self.ledger,
                query_id,
                life,
                shape.registry,
                profile.duration_ms,
            )
            for query_id, life in self.world.life_starts.items()
        ]
        for one, other in PAIRS if profile.rivals else ():
            life = self.world.life_starts.get(one)
            if life is not None:
                is_for_good = all(
                    act.members is not None and "ttl" not in act.members for act in life
                )
                Rival(
                    self.scheduler,
                    log,
                    self,
                    self.ledger,
                    one,
                    other,
                    shape.registry,
                    is_for_good=is_for_good,
                )
        self.subscribers = [
            Subscriber(self.scheduler, log, name, partition_of(name, shape.partials))
            for name in (f"s-{n}" for n in range(4))
        ]
        self.map_maker = MapMaker(self, seed, profile)
        SlotMover(self, seed, profile)
        self.balancers = Balancers(self, seed, profile)
        self.searchers = Searchers(self, seed)
        self.faults = Faults(self, profile)
        self.scheduler.after(200, self._supervise)
        self.scheduler.after(RECALL_MS, self._recover)

    # --- nodes

    def start(self, service: str) -> None:
        """Starts a process of a service, with a new id."""
        number = self._started[service]
        self._started[service] += 1
        skew_ms = self.scheduler.between(-1, 1) * self.profile.skew_ms
        self.nodes.append(
            new_node(self.parts, service, f"{service}-{number:03}", self.world.shape, skew_ms)
        )

    def of(self, service: str) -> list[Node]:
        """Returns the living nodes of a service."""
        return [node for node in self.nodes if node.service == service and node.is_alive]

    def routers(self) -> dict[str, RouterNode]:
        """Returns all living routers by member id."""
        return {n.member: n for n in self.nodes if isinstance(n, RouterNode) and n.is_alive}

    def pick(self) -> RouterNode | None:
        """Returns a router for a client; it may be paused, which clients cannot know."""
        routers = list(self.routers().values())
        return self.scheduler.dice.choice(routers) if routers else None

    def _supervise(self) -> None:
        for node in [node for node in self.nodes if not node.is_alive]:
            self.nodes.remove(node)
            why = node.ended.split(":")[0]
            self.events[f"{node.service} ended, {why}"] += 1
            self._check_handed_over(node)
            if len(self.of(node.service)) < self.wanted[node.service]:
                delay_ms = 0 if self.faults.is_over else self.scheduler.between(50, 6_000)
                service = node.service
                if service == "router":
                    delay_ms += max(0.0, self.faults.outage_until_ms - self.scheduler.now_ms)
                self.scheduler.after(delay_ms, lambda service=service: self.start(service))
        self.scheduler.after(200, self._supervise)

    def _check_handed_over(self, node: Node) -> None:
        """Checks that an evaluator that drained has kept no slot that others could take."""
        if not isinstance(node, EvaluatorNode) or node.left_behind is None:
            return
        self.events["handed over" if not node.left_behind else "left behind"] += 1
        is_promised = self.profile.hands_all_over and node.could_hand_over
        if is_promised and node.left_behind:
            raise BrokenPromiseError(f"{node.member} ended and left {node.left_behind} slots")

    def _recover(self) -> None:
        """Does the work of each router's thread: reads back what its registries have to repeat."""
        for node in [node for node in self.routers().values() if not node.is_paused]:
            for partition, registry in node.machine.registries.items():
                records = self.log.partition(REGISTRY, partition).records
                for handle in registry.hidden:
                    place = registry.place(handle)
                    if place == NO_REVISION:
                        continue
                    change = records[place].message
                    assert isinstance(change, Change)
                    # A record that an owner takes for true by its checkpoint may be gone. It
                    # repeats nothing before it has read all records before its own first one.
                    is_there = not records[place].is_hidden
                    assert is_there or not registry.is_announced, "what is in force was taken"
                    if not is_there:
                        continue
                    recovered = RecoveredDefinition(partition, place, change)
                    delay_ms = self.scheduler.between(*self.log.delays.call)
                    self.scheduler.after(delay_ms, partial(node.sends, recovered))
                if registry.live.unplaced:
                    self._reread(node, partition)
        self.scheduler.after(RECALL_MS, self._recover)

    def _reread(self, node: RouterNode, partition: int) -> None:
        """Does the work of the router's other thread: rereads the partition piece by piece."""
        records = self.log.partition(REGISTRY, partition).records
        at_ms, begin = 0.0, 0
        while begin < len(records):
            end = begin + self.scheduler.dice.randint(1, 40)
            piece = tuple(
                (stored.offset, stored.message)
                for stored in records[begin:end]
                if isinstance(stored.message, Change) and not stored.is_hidden
            )
            at_ms += self.scheduler.between(*self.log.delays.call)
            self.scheduler.after(at_ms, partial(node.sends, RegistryRecords(partition, piece)))
            begin = end

    # --- the run

    def run(self) -> Report:
        """Runs to the end and checks all promises.

        Raises:
            BrokenPromiseError: a promise was broken.
        """
        self.scheduler.run_until(max(self.world.duration_ms, self.profile.faults_ms))
        self.faults.heal()
        limit_ms = self.scheduler.now_ms + self.profile.recovery_ms
        self._run_until(limit_ms, self._is_healed, "what was refused is known")
        self._run_until(limit_ms, self._are_clients_done, "clients are done")
        self._deliver(limit_ms)
        self._run_until(limit_ms, self._is_registry_true, "newest changes say what is in force")
        self._run_until(limit_ms, self.log.is_control_true, "checkpoints are as the newest say")
        self._run_until(limit_ms, self._are_checkpoints_whole, "what counts can be loaded")
        self._run_until(limit_ms, self.map_maker.is_settled, "the change of the map is over")
        self._run_until(limit_ms, lambda: self.balancers.is_settled, "what was planned is done")
        self._run_until(limit_ms, self._is_owned_once, "everything is owned, by one alone")
        self._run_until(
            limit_ms,
            lambda: self._are_slots_complete() and self._is_owned_once(),
            "past objects are loaded",
        )
        self.searchers.ask_last()
        limit_ms = self.scheduler.now_ms + self.profile.recovery_ms
        self._run_until(limit_ms, lambda: self.searchers.is_done, "all searches are answered")
        # Requests sent by a publisher before it gave up may have arrived only now.
        reported = self._deliver(limit_ms)
        for topic, slot, offset in sorted(self.parts.set_aside):
            assert topic == SLOTS
            ended_during = self.parts.ended_during[slot, offset, offset + 1]
            self.ledger.set_aside(slot, offset, ended_during)
            self.events["set aside"] += 1
        self.ledger.check()
        self._check_subscribers(reported)
        return Report(
            self.seed,
            self.profile.name,
            self.scheduler.now_ms,
            sum(1 for each in self.ledger.objects.values() if each.places),
            sum(map(len, self.ledger.sent.values())),
            self.events,
        )

    def _deliver(self, limit_ms: float) -> dict[str, int]:
        """Runs until the whole log has been received; returns each subscriber's count."""
        ends = [self.log.partition(INTAKE, p).high for p in range(self.world.shape.intake)]
        self._run_until(limit_ms, lambda: self._is_routed(ends), "all is routed")
        slots = [self.log.partition(SLOTS, slot).high for slot in range(self.world.shape.slots)]
        self._run_until(limit_ms, lambda: self._is_merged(slots), "all is delivered")
        highs = [self.log.partition(DELIVERIES, p).high for p in range(self.world.shape.partials)]
        reported = {name: len(each) for name, each in self.ledger.sent.items()}
        self._run_until(limit_ms, lambda: self._is_received(highs), "all is received")
        return reported

    def _run_until(self, limit_ms: float, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            if self.scheduler.now_ms > limit_ms:
                raise BrokenPromiseError(
                    f"no progress: {self.profile.recovery_ms:.0f} ms after the faults, not: {what}"
                )
            self.scheduler.run_until(self.scheduler.now_ms + 250)

    def _are_slots_complete(self) -> bool:
        living = [node for node in self.nodes if node.is_alive]
        evaluators = [node for node in living if isinstance(node, EvaluatorNode)]
        leaders = [n for n in living if isinstance(n, CoordinatorNode) and n.machine.leading]
        # Slots that were warmed move at the next look at the members.
        is_moving = any(node.machine._warming_ms for node in leaders) or any(
            node.is_handing_over for node in evaluators
        )
        # An evaluator that has just come gets its share when the coordinator has seen it for long.
        members = {node.member for node in evaluators}
        is_moving |= not all(_shares_among(node, members) for node in leaders)
        return not is_moving and all(node.machine.is_complete for node in evaluators)

    def _is_healed(self) -> bool:
        return not any(node.is_doomed for node in self.nodes)

    def _are_clients_done(self) -> bool:
        clients: list[Publisher | QueryOwner | MapMaker]
        clients = [*self.publishers, *self.owners, self.map_maker]
        return all(client.is_done for client in clients)

    def _is_routed(self, ends: list[int]) -> bool:
        return all(
            self.ledger.slots.reached(slot, source) >= position_of(end)
            for slot in range(self.world.shape.slots)
            for source, end in enumerate(ends)
        )

    def _is_merged(self, ends: list[int]) -> bool:
        for partition in range(self.world.shape.partials):
            progress = next(
                (
                    stored.message
                    for stored in reversed(self.log.partition(DELIVERIES, partition).records)
                    if isinstance(stored.message, Progress)
                ),
                None,
            )
            if progress is None:
                return False
            reached = dict(zip(progress.slots.tolist(), progress.positions.tolist(), strict=True))
            if any(reached.get(slot, 0) < position_of(end) for slot, end in enumerate(ends)):
                return False
        return True

    def _is_received(self, highs: list[int]) -> bool:
        return all(
            self.log.next_seen_ms(DELIVERIES, each.partition, each.cursor) is None
            or each.cursor >= highs[each.partition]
            for each in self.subscribers
        )

    def _is_registry_true(self) -> bool:
        logs = [self.log.partition(REGISTRY, p).records for p in range(self.world.shape.registry)]
        return not any(unpublished([stored.message for stored in log]) for log in logs)

    def _are_checkpoints_whole(self) -> bool:
        return not unreadable(self.log, self.parts.archive)

    def _is_owned_once(self) -> bool:
        """Returns whether each owner named by `control`, and no other, owns its partitions."""
        leaders = [n for n in self.of("coordinator") if isinstance(n, CoordinatorNode)]
        view = next((node.machine.view for node in leaders if node.machine.leading), None)
        if view is None:
            return False
        for topic, partitions in self.world.shape.owned().items():
            for partition in range(partitions):
                owners = [
                    node.member
                    for node in self.of(SERVICE_OF_TOPIC[topic])
                    if node.machine.holdings.owns(topic, partition)  # type: ignore[attr-defined]
                ]
                granted = view.owners.get((topic, partition))
                if granted is None or owners != [granted.member]:
                    return False
        return True

    def _check_subscribers(self, least: dict[str, int]) -> None:
        for subscriber in self.subscribers:
            # Time advances: there may be more to read by now than has been read.
            received = len(subscriber.received)
            is_all = received >= least.get(subscriber.name, 0)
            if not is_all or subscriber.received != self.ledger.sent[subscriber.name][:received]:
                raise BrokenPromiseError(
                    f"{subscriber.name} received other than what was delivered to it"
                )


def _shares_among(leader: CoordinatorNode, evaluators: set[str]) -> bool:
    """Returns whether a coordinator has given slots their owners among these, and no others."""
    seen = leader.machine._watched.get("evaluator")
    return seen is not None and seen.waiting_since_ms is None and set(seen.members) == evaluators


def simulate(seed: int, profile: str, planted: Planted = SOUND) -> Report:
    """Runs one seed under a profile of faults.

    Raises:
        BrokenPromiseError: a promise was broken, or a machine raised; the text ends with the line
            that repeats it.
    """
    cluster = Cluster(seed, PROFILES[profile], planted)
    try:
        with poisoned(cluster.ledger.poison):
            return cluster.run()
    except Exception as error:
        why = error if isinstance(error, BrokenPromiseError) else f"{type(error).__name__}: {error}"
        repeat = f"python -m tests.simulation --seed {seed} --profile {profile}"
        at = f"at {cluster.scheduler.now_ms:.0f} ms"
        raise BrokenPromiseError(f"{why} ({at}; repeat: {repeat})") from error
