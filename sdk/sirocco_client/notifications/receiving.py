"""State of a subscription: its position in the stream, and the credit of the server.

No I/O and no clock; the same for both clients.
"""

from __future__ import annotations

from sirocco_api.v1.receive_service_pb2 import Credit, Open, ReceiveRequest, ReceiveResponse

from sirocco_client.base.members import read_text
from sirocco_client.connection.flow import CreditWindow
from sirocco_client.errors import InvalidArgument
from sirocco_client.notifications.decode import NotificationBatch

# Matches that a subscription lets the server send ahead.
CREDIT = 10_000


class Receiving:
    """The state of one subscription.

    Attributes:
        subscriber: Its notifications are received.
        position: Cursor after everything received; a new stream begins here.
        consumed: Cursor after everything that the consumer has finished.
        is_placed: Whether the server has sent the start position of the present stream.
    """

    def __init__(
        self,
        subscriber: str,
        cursor: str | None,
        from_earliest: bool,
        credit: int,
        joined: bool = False,
    ) -> None:
        if not subscriber:
            raise InvalidArgument("must not be empty", field="subscriber")
        self.subscriber = read_text(subscriber, "subscriber")
        self.position = read_text(cursor or "", "cursor")
        self.consumed = self.position
        self.is_placed = False
        self._from_earliest = from_earliest
        self._joined = joined
        self._credit = CreditWindow(credit)
        self._in_hand: NotificationBatch | None = None

    def open_request(self) -> ReceiveRequest:
        """Returns the first request of a new stream."""
        self.is_placed = False
        return ReceiveRequest(
            open=Open(
                subscriber=self.subscriber,
                cursor=self.position,
                from_earliest=self._from_earliest and not self.position,
                matches=self._credit.restart(),
                joined=self._joined,
            )
        )

    def received(self, response: ReceiveResponse) -> NotificationBatch | None:
        """Processes a response; returns its batch, None if it only holds the position.

        Raises:
            Internal: The response is damaged.
        """
        batch = NotificationBatch(response, self.position)
        self.is_placed = True
        if response.cursor:
            self.position = response.cursor
        if len(batch):
            self._in_hand = batch
            return batch
        if self._in_hand is None:
            self.consumed = self.position
        return None

    def done(self) -> ReceiveRequest | None:
        """Marks the last batch as finished; returns the credit to give, if any."""
        if self._in_hand is None:
            return None
        count, self._in_hand = len(self._in_hand), None
        self.consumed = self.position
        granted = self._credit.consume(count)
        return ReceiveRequest(credit=Credit(matches=granted)) if granted else None
