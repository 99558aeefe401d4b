"""Computes the changes in force from a whole registry log, and checks its newest records.

Compaction keeps the newest record of each query. So at the end this record has to be the change
in force, or a repeat of it.
"""

from __future__ import annotations

from sirocco.protocol.contract.messages import NO_REVISION, Change, Message, Prepare, Retire


def unpublished(messages: list[Message]) -> list[int]:
    """Returns the queries whose newest record is not the change in force."""
    epoch = 0
    force: dict[int, tuple[int, Change]] = {}
    newest: dict[int, tuple[int, Change, bool]] = {}
    for offset, change in enumerate(messages):
        if isinstance(change, Prepare | Retire):
            continue
        assert isinstance(change, Change)
        is_late, epoch = change.epoch < epoch, max(epoch, change.epoch)
        if change.is_probe:
            continue
        revision = force[change.handle][0] if change.handle in force else NO_REVISION
        is_valid = not is_late and change.expected_revision == revision
        newest[change.handle] = offset, change, is_valid
        if not is_valid or change.is_republished:
            continue
        force.pop(change.handle, None)
        if change.query is not None:
            force[change.handle] = offset, change
    # A void record may hold the truth, but its readers take it for void.
    return [
        handle
        for handle, (offset, change, is_valid) in newest.items()
        if not is_valid or not _stands_for(offset, change, force)
    ]


def _stands_for(offset: int, change: Change, force: dict[int, tuple[int, Change]]) -> bool:
    if change.handle not in force:
        return change.query is None
    revision, true = force[change.handle]
    if offset == revision:
        return True
    # A repeat that is not the owner's would be validated against another revision.
    return (
        change.is_republished
        and change.expected_revision == revision
        and (change.query, change.subscriber) == (true.query, true.subscriber)
        and (change.start_ms, change.digest) == (true.start_ms, true.digest)
    )
