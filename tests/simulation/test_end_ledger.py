"""The simulator's ledger judges ends that slots were not informed of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sirocco.model.query import canonical, parse_query, query_handle
from sirocco.protocol.contract.messages import NO_PAST, NO_REVISION, REGISTRY, Change
from tests.simulation.end_ledger import EndLedger
from tests.simulation.ledger import BrokenPromiseError
from tests.simulation.log import COMPACTION_LAG_MS, Delays, SimLog
from tests.simulation.query_versions import Asked
from tests.simulation.scheduler import Scheduler
from tests.simulation.slot_truth import Stay

QUERY = parse_query({"id": "q", "kind": "range", "mode": "continuous", "events": ["ended"]})
HANDLE = query_handle("q")


def check(*, is_compacted: bool, later_epoch: int) -> None:
    """Registers and removes a query by an owner of epoch 1; no slot is informed of its end."""
    log = SimLog(Scheduler(0), Delays(), is_coded=False)
    changes = [
        Change(
            handle=HANDLE,
            query=QUERY,
            subscriber="ann",
            start_ms=0,
            expected_revision=NO_REVISION,
            digest=7,
            epoch=1,
        ),
        Change(
            handle=HANDLE,
            query=None,
            subscriber="",
            start_ms=0,
            expected_revision=0,
            digest=0,
            epoch=1,
        ),
        Change(
            handle=HANDLE + 1,
            query=None,
            subscriber="",
            start_ms=0,
            expected_revision=0,
            digest=5,
            epoch=later_epoch,
        ),
    ]
    log.put(REGISTRY, 0, list(changes))
    log.scheduler.run_until(2 * COMPACTION_LAG_MS)
    if is_compacted:
        log.compact_registry()

    def fail(why: str) -> None:
        raise BrokenPromiseError(why)

    world: Any = SimpleNamespace(
        life_starts={"q": None}, shape=SimpleNamespace(registry=1, slots=2, partials=1)
    )
    truth: Any = SimpleNamespace(passed_at=lambda slot, time_ms: None)
    version = Asked(
        revision=0,
        query=QUERY,
        members=canonical(QUERY),
        subscriber="ann",
        start_ms=0,
        past_ms=NO_PAST,
        stays={0: Stay(0, 0, end=1)},
        is_whole=True,
        is_start_said=False,
        since=NO_REVISION,
    )
    EndLedger(log, world, truth, fail).check(lambda handle: [version], {})


def test_an_owner_that_finds_a_version_no_more_need_not_tell_its_end() -> None:
    check(is_compacted=True, later_epoch=2)


@pytest.mark.parametrize(("is_compacted", "later_epoch"), [(False, 2), (True, 1), (False, 1)])
def test_who_could_read_the_version_has_to_tell_its_end(
    is_compacted: bool, later_epoch: int
) -> None:
    with pytest.raises(BrokenPromiseError, match="said in slots"):
        check(is_compacted=is_compacted, later_epoch=later_epoch)
