"""Planted bugs in the tracking of objects by the values of members."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.index.standing.track.track_index import TrackIndex
from sirocco.index.standing.track.track_pairs import Members
from sirocco.protocol.contract.effects import Effect, State
from sirocco.protocol.contract.messages import NEVER_MS, TrackedMemberSet
from sirocco.protocol.router.objects import track_copies
from sirocco.protocol.router.queries.member_declarations import MemberDeclarations
from sirocco.protocol.router.queries.registry_partition import Registry
from tests.simulation.plants import Plant


def _publish_members_of_the_checkpoint(self: Registry, now_ms: int) -> list[Effect]:
    if not self.is_announced and not self.is_deposed and not self.member_declarations._published:
        return self._everywhere([self.member_declarations.keep()])
    return _forget_members(self, now_ms)


def _restore_nothing(self: MemberDeclarations, state: State) -> None:
    self._known = {"vehicle", "size"}


def _keep_as_published(self: MemberDeclarations) -> TrackedMemberSet:
    reported = self._published
    kept = _keep_own(self)
    self._published = reported
    return kept


_forget_members = Registry.forget_members
_keep_own = MemberDeclarations.keep


def _are_all_entered(self: Members) -> NDArray[np.bool_]:
    return np.ones(len(self), np.bool_)


TRACK_PLANTS = (
    Plant(
        "a value that only dwelt leaves with an exit when its query ends",
        "trackers",
        ((Members, "have_entered", property(_are_all_entered)),),
        first_seed=23,
    ),
    Plant(
        "what was waited for is reported only before the value's next object",
        "trackers",
        ((TrackIndex, "next_due_ms", property(lambda self: NEVER_MS)),),
        first_seed=4,
    ),
    Plant(
        "a copy names only one of its values",
        "calm",
        ((track_copies, "_further", lambda rows, tracks, values: None),),
        first_seed=9,
    ),
    Plant(
        "an owner publishes at a take-over the members of its checkpoint",
        "trackers",
        ((Registry, "forget_members", _publish_members_of_the_checkpoint),),
        first_seed=20,
    ),
    Plant(
        "an owner forgets at a take-over which members queries track",
        "trackers",
        ((MemberDeclarations, "restore", _restore_nothing),),
        first_seed=6,
    ),
    Plant(
        "a forgotten member is not published again",
        "trackers",
        ((MemberDeclarations, "keep", _keep_as_published),),
        first_seed=48,
    ),
)
