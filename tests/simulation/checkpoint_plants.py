"""Planted bugs in checkpoints: what they depend on, when they count, and what is kept for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sirocco.index.store.slices import SealedSlice
from sirocco.protocol.contract.control_records import CheckpointTaken, Declaration
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import ControlRead, Effect, Truncate
from sirocco.protocol.evaluator.machine import EvaluatorMachine
from sirocco.protocol.evaluator.slot.archived_slices import ArchiveManifest, Span, slice_name
from sirocco.protocol.evaluator.slot.slot import Slot
from tests.simulation.node import Planted
from tests.simulation.plants import Plant


def _discard_what_counts(self: ArchiveManifest, name: str) -> list[str]:
    is_own = name in self._saving
    stale = _durable(self, name)
    newest = [slice_name(self.slot, span) for span in self._newest] if is_own else []
    return [*stale, *newest]


def _archived_at_once(
    self: ArchiveManifest, name: str, slices: Sequence[SealedSlice], full_rows: int
) -> tuple[list[Span], list[tuple[str, SealedSlice]]]:
    stands_on, brought = _saving(self, name, slices, full_rows)
    self.archived |= self._saving[name]
    return stands_on, brought


def _truncate_what_was_read(self: EvaluatorMachine, event: ControlRead) -> list[Effect]:
    return [
        replace(effect, before_offset=self.slots[effect.partition].offset)
        if isinstance(effect, Truncate)
        else effect
        for effect in _control(self, event)
    ]


def _last_counts(self: ControlView, offset: int, declaration: Declaration) -> bool:
    if isinstance(declaration, CheckpointTaken):
        self.checkpoints.pop((declaration.topic, declaration.partition), None)
    return _apply(self, offset, declaration)


def _save_without_slices(self: EvaluatorMachine, slot: Slot) -> bool:
    return slot.number not in self.stepping and slot.number not in self.careful_reading


_durable = ArchiveManifest.durable
_saving = ArchiveManifest.begin_save
_control = EvaluatorMachine._control
_apply = ControlView.apply

CHECKPOINT_PLANTS = (
    Plant(
        "a checkpoint is declared before all of it is written",
        "torn",
        (),
        Planted(declares_early=True),
    ),
    Plant(
        "a blob for which there was no room counts as written",
        "torn",
        (),
        Planted(forgets_failures=True),
        first_seed=2,
    ),
    Plant(
        "slices count as archived before their checkpoint does",
        "torn",
        ((ArchiveManifest, "begin_save", _archived_at_once),),
        first_seed=2,
    ),
    Plant(
        "the checkpoint declared last counts instead of the farthest",
        "torn",
        ((ControlView, "apply", _last_counts),),
        first_seed=96,
    ),
    Plant(
        "slices that the newest checkpoint needs are discarded",
        "kill-evaluator",
        ((ArchiveManifest, "durable", _discard_what_counts),),
    ),
    Plant(
        "the log of a slot is truncated up to what was read",
        "torn",
        ((EvaluatorMachine, "_control", _truncate_what_was_read),),
        first_seed=2,
    ),
    Plant(
        "a slot is saved before its past objects are loaded",
        "searching",
        ((EvaluatorMachine, "_may_save", _save_without_slices),),
        first_seed=4,
    ),
    Plant(
        "a slot is searched before its past objects are loaded",
        "searching",
        ((Slot, "is_catching_up", property(lambda self: self._is_behind)),),
        first_seed=4,
    ),
    Plant(
        "steps are taken before the past objects are loaded",
        "steps",
        ((Slot, "awaits_slices", False),),
    ),
)
