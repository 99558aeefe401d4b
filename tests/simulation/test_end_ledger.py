"""The simulator's ledger judges ends of versions that slots were not informed of, or never held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sirocco.model.query import Query, parse_query, query_handle
from sirocco.protocol.contract.columns import BY_REMOVAL
from sirocco.protocol.contract.effects import Append
from sirocco.protocol.contract.messages import (
    DELIVERIES,
    NO_REVISION,
    REGISTRY,
    Change,
    Installed,
    Progress,
)
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.router.queries.end_requests import End
from sirocco.protocol.router.queries.install_records import Installs
from tests.simulation.end_ledger import EndLedger
from tests.simulation.ledger import BrokenPromiseError
from tests.simulation.log import COMPACTION_LAG_MS, Delays, SimLog
from tests.simulation.query_versions import version_of
from tests.simulation.scheduler import Scheduler
from tests.simulation.slot_truth import Stay

QUERY = parse_query({"id": "q", "kind": "range", "mode": "continuous", "events": ["ended"]})
HANDLE = query_handle("q")


EVERYWHERE = (0, 1)


def check(
    *,
    is_compacted: bool = False,
    later_epoch: int = 2,
    is_held: bool = True,
    published: tuple[int, ...] = (),
    sent: int = 0,
) -> None:
    """Registers and removes a query by an owner of epoch 1, and checks its end.

    Args:
        is_compacted: the registry is compacted afterwards.
        later_epoch: of the last owner.
        is_held: whether a slot ever held the query.
        published: the slots that are informed of the end.
        sent: how often it is reported.
    """
    log = SimLog(Scheduler(0), Delays(), is_coded=False)
    log.put(REGISTRY, 0, [change(QUERY), change(None, 0), change(None, 0, 5, later_epoch)])
    log.scheduler.run_until(2 * COMPACTION_LAG_MS)
    if is_compacted:
        log.compact_registry()
    slots, positions = (
        np.array(published, np.uint32),
        np.full(len(published), position_of(1), np.int64),
    )
    progress = Progress(0, slots, positions, np.zeros(len(published), np.int64))
    log.put(DELIVERIES, 0, [progress])

    def fail(why: str) -> None:
        raise BrokenPromiseError(why)

    world: Any = SimpleNamespace(
        life_starts={"q": None}, shape=SimpleNamespace(registry=1, slots=2, partials=1)
    )
    truth: Any = SimpleNamespace(passed_at=lambda slot, time_ms: None)
    (stored, *_) = log.partition(REGISTRY, 0).records
    held = [version_of(stored, {0: Stay(0, 0, end=1)}, is_whole=True)] if is_held else []
    ledger = EndLedger(log, world, truth, fail)
    installs = Installs(0, 0)
    end = End("q", "ann", revision=0, by=1, has_expired=False)
    for effect in installs.ends([end], list(published)):
        assert isinstance(effect, Append)
        assert isinstance(effect.message, Installed)
        ledger.installed(effect.partition, 0, effect.message)
    for _ in range(sent):
        ledger.add_sent("ann", HANDLE, BY_REMOVAL)
    line = (HANDLE, SimpleNamespace(ended=BY_REMOVAL))
    ledger.check(lambda handle: held, {"ann": [line] * sent})


def change(
    query: Query | None, expected: int = NO_REVISION, digest: int = 0, epoch: int = 1
) -> Change:
    """Returns a registration, a removal, or with a digest a probe."""
    return Change(
        handle=HANDLE,
        query=query,
        subscriber="" if query is None else "ann",
        start_ms=0,
        expected_revision=expected,
        digest=7 if query is not None else digest,
        epoch=epoch,
    )


def test_an_owner_without_the_version_need_not_publish_its_end() -> None:
    check(is_compacted=True, later_epoch=2)


@pytest.mark.parametrize(("is_compacted", "later_epoch"), [(False, 2), (True, 1), (False, 1)])
def test_an_owner_that_could_read_the_version_has_to_publish_its_end(
    is_compacted: bool, later_epoch: int
) -> None:
    with pytest.raises(BrokenPromiseError, match="published in slots"):
        check(is_compacted=is_compacted, later_epoch=later_epoch)


def test_the_end_of_a_version_that_no_slot_held_is_sent_once() -> None:
    check(is_held=False, published=EVERYWHERE, sent=1)
    with pytest.raises(BrokenPromiseError, match="2 ends were sent, wanted 1 to 1"):
        check(is_held=False, published=EVERYWHERE, sent=2)
    with pytest.raises(BrokenPromiseError, match="0 ends were sent, wanted 1 to 1"):
        check(is_held=False, published=EVERYWHERE)


def test_the_end_of_a_version_that_no_slot_held_is_published_to_all_slots() -> None:
    with pytest.raises(BrokenPromiseError, match="published in slots"):
        check(is_held=False)
    with pytest.raises(BrokenPromiseError, match="published in slots"):
        check(is_held=False, published=EVERYWHERE[:1])
