"""Transactions on `deliveries`: a merger appends all messages of one, or none."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.protocol.contract.messages import Message


@dataclass(frozen=True, slots=True)
class Committed:
    """An answer to `Transact`: all of it is in the log; `number` is the transaction's."""

    partition: int
    number: int
    bytes_total: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Written:
    """An answer to a part of a transaction that is not its last one: readers do not see it yet."""

    partition: int
    number: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The other answer to `Transact`: nothing of it is in the log.

    Another process has fenced, or the log has aborted a transaction whose first parts are gone.
    """

    partition: int
    number: int


@dataclass(frozen=True, slots=True)
class Transact:
    """Append all messages to one Kafka partition of `deliveries` in one transaction, or none.

    Answered by `Committed` or `Fenced`; a machine has at most one open for a Kafka partition.
    `Fence` cancels all transactions before it, also those of this process; `number` identifies one.

    A large transaction has several parts, one after the other, so that no process has to hold all
    of it. Each is answered by `Written`, but for the last one.
    """

    partition: int
    number: int
    messages: tuple[Message, ...]
    is_first: bool = True
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class Fence:
    """From here on no predecessor's transaction on this Kafka partition can succeed."""

    partition: int
