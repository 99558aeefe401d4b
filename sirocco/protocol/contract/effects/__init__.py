"""The events that state machines take and the effects that they ask for.

A machine is `step(event, now_ms) -> list[Effect]`: no I/O, no clock, no randomness. A shell (the
runtime on real parts, the simulator on virtual ones) carries the effects out strictly in the order
of the list. `SaveCheckpoint`, `Declare`, `Answer` and `Truncate` promise something about what was
appended before them. They are *barriers*: they are carried out only when the log has acknowledged
every earlier `Append` of this machine. A failed append ends the process, so later barriers are
never carried out.

Each module of this folder holds the events and effects of one concern; all are imported from here.
"""

from __future__ import annotations

from sirocco.protocol.contract.effects.answers import (
    Answer,
    Outcome,
    Outcomes,
    errors_of,
)
from sirocco.protocol.contract.effects.change_requests import (
    ChangeRequest,
    ChangeRequests,
    ColumnRequests,
    PlainRequests,
    RecoveredDefinition,
    RegistryRecords,
    RemovalRequests,
)
from sirocco.protocol.contract.effects.checkpoints import (
    Discard,
    Load,
    Loaded,
    LoadSlices,
    SaveCheckpoint,
    SaveRequest,
    SlicesLoaded,
    State,
    Sweep,
)
from sirocco.protocol.contract.effects.cluster import (
    ControlRead,
    Declare,
    Member,
    MembersSeen,
    ProposedMap,
    Publish,
    RebalanceRequest,
    SlotWeights,
    Warmed,
)
from sirocco.protocol.contract.effects.log import (
    Append,
    AppendChanges,
    EndsFound,
    Entry,
    FindEnds,
    Follow,
    Polled,
    SetAside,
    Truncate,
    Unfollow,
)
from sirocco.protocol.contract.effects.process import (
    Compute,
    Computed,
    Draining,
    FlushRequest,
    Tick,
)
from sirocco.protocol.contract.effects.transactions import (
    Committed,
    Fence,
    Fenced,
    Transact,
    Written,
)

__all__ = [
    "Answer",
    "Append",
    "AppendChanges",
    "ChangeRequest",
    "ChangeRequests",
    "ColumnRequests",
    "Committed",
    "Compute",
    "Computed",
    "ControlRead",
    "Declare",
    "Discard",
    "Draining",
    "Effect",
    "EndsFound",
    "Entry",
    "Event",
    "Fence",
    "Fenced",
    "FindEnds",
    "FlushRequest",
    "Follow",
    "Load",
    "LoadSlices",
    "Loaded",
    "Member",
    "MembersSeen",
    "Outcome",
    "Outcomes",
    "PlainRequests",
    "Polled",
    "ProposedMap",
    "Publish",
    "RebalanceRequest",
    "RecoveredDefinition",
    "RegistryRecords",
    "RemovalRequests",
    "SaveCheckpoint",
    "SaveRequest",
    "SetAside",
    "SlicesLoaded",
    "SlotWeights",
    "State",
    "Sweep",
    "Tick",
    "Transact",
    "Truncate",
    "Unfollow",
    "Warmed",
    "Written",
    "errors_of",
]

Event = (
    ControlRead
    | Polled
    | Loaded
    | SlicesLoaded
    | Committed
    | Written
    | Fenced
    | ChangeRequests
    | ColumnRequests
    | RecoveredDefinition
    | RegistryRecords
    | ProposedMap
    | MembersSeen
    | Warmed
    | Computed
    | EndsFound
    | Tick
    | FlushRequest
    | SaveRequest
    | SlotWeights
    | RebalanceRequest
    | Draining
)

Effect = (
    Append
    | AppendChanges
    | Declare
    | Load
    | LoadSlices
    | Follow
    | Unfollow
    | SaveCheckpoint
    | Compute
    | FindEnds
    | Discard
    | Sweep
    | Truncate
    | SetAside
    | Answer
    | Transact
    | Fence
    | Publish
)
