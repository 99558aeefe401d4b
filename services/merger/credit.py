"""Credit of a stream: how many matches its client is ready to take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Self

from sirocco_api.v1.receive_service_pb2 import Open

from sirocco.model.errors import InvalidArgument, SiroccoError

CREDIT_MAX = 1 << 40


@dataclass(slots=True)
class Credit:
    """Number of matches and lists that may be sent; the reader of the stream's requests raises it.

    Attributes:
        refused: error of a later request; ends the stream.
    """

    matches: int
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    refused: SiroccoError | None = None

    @classmethod
    def of(cls, opened: Open) -> Self:
        """Returns what a stream begins with."""
        return cls(min(opened.matches, CREDIT_MAX))

    def add(self, matches: int) -> None:
        """Adds credit."""
        if matches < 1:
            raise InvalidArgument("must be positive", field="credit.matches")
        self.matches = min(self.matches + matches, CREDIT_MAX)
        self.changed.set()

    def refuse(self, error: SiroccoError) -> None:
        """Refuses further credit: a waiting sender gets the error."""
        self.refused = error
        self.changed.set()

    async def some(self) -> None:
        """Returns when there is credit.

        Raises:
            SiroccoError: a later request was invalid, or could not be accepted.
        """
        while self.matches <= 0:
            if self.refused is not None:
                raise self.refused
            self.changed.clear()
            await self.changed.wait()
