"""Why a call to brokers got no answer: what the client reported of its connections meanwhile.

Such a call ends as timed out, or as a failure of transport, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from sirocco.transport.errors import AccessRefused, TransportUnavailable
from sirocco.transport.kafka_errors import cause_of
from sirocco.transport.kafka_settings import KafkaSettings

UNANSWERED: Final = frozenset((KafkaError._TIMED_OUT, KafkaError._TRANSPORT))

# The client reports all failures of a handshake alike; a broker that ends within one is another
# matter than a certificate that nobody here trusts.
_UNTRUSTED: Final = "certificate verify failed"


class KafkaReports:
    """The reports of one client, which has `note` as its `error_cb`.

    Args:
        settings: of the cluster.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Keeps a report; called by the client while it is polled."""
        # That no broker is left says less than the error before it.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def explained(self, client: Any, cause: KafkaError, what: str) -> TransportUnavailable:
        """Returns the error of a call that got no answer.

        Args:
            client: made the call; its reports since it was polled are taken.
            cause: how the call ended.
            what: the call.
        """
        self._last = None
        client.poll(0)
        if self._last is None:
            return TransportUnavailable(f"{what}: {cause.str()}")
        field, text = self._field_of(self._last), f"{what}: {self._last.str()}"
        if field is None:
            return TransportUnavailable(text)
        return AccessRefused(text, field=field)

    @contextmanager
    def refusals(self, client: Any, what: str) -> Iterator[None]:
        """Raises AccessRefused where a call within got no answer because of it."""
        try:
            yield
        except KafkaException as error:
            if cause_of(error).code() in UNANSWERED:
                found = self.explained(client, cause_of(error), what)
                if isinstance(found, AccessRefused):
                    raise found from error
            raise

    def _field_of(self, report: KafkaError) -> str | None:
        """Returns the setting that a report is about."""
        if report.code() == KafkaError._AUTHENTICATION:
            return self._settings.password_field
        if report.code() == KafkaError._SSL and _UNTRUSTED in report.str():
            return self._settings.ca_field
        return None
