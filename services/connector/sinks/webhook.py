"""The sink into a webhook: batches by HTTP POST, signed as Standard Webhooks says.

At least once: the place is kept after the receiver's answer. The ends of the next batches are kept
before they are sent, so that a restarted sink sends the same batches with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import httpcore
import httpx
import orjson
from standardwebhooks.webhooks import Webhook

from sirocco.runtime.process.clock import now_ms
from sirocco.services.connector.sinks.addresses import CheckedNetwork, PrivateAddressError
from sirocco.services.connector.sinks.blocks import MOVED_MS, Block
from sirocco.services.connector.sinks.dead_letters import DeadLetters
from sirocco.services.connector.sinks.errors import SinkStopped, TargetUnavailable
from sirocco.services.connector.sinks.retries import (
    Answered,
    Delivered,
    Failed,
    GiveUp,
    Gone,
    Outcome,
    RetryPolicy,
    Tries,
    TryAgain,
)
from sirocco.services.connector.sinks.rows import Form
from sirocco.services.connector.sinks.sink import Counts
from sirocco.services.connector.sinks.state import Saved, Store, receiver_mark
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# How much of a receiver's answer is read: a body may be endless.
_ANSWER_BYTES = 64 << 10

_WANTS_NO_MORE = "the receiver has answered 410: it wants no more"

# The head of an answer decides. Its body is read for so long, so that the connection serves again.
_BODY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Where batches go.

    Attributes:
        url: Of the receiver.
        secrets: Of signatures; the first one signs, others too while receivers change theirs.
        headers: Sent with each request; never printed.
        timeout_s: For a whole request, from the connection to the end of the answer.
        allow_private: Whether the receiver may have an address that is not public.
        ca: Certificates that are trusted beside the system's; None: the system's alone.
        retry: How often and how soon a batch is sent again.
    """

    url: str
    secrets: tuple[str, ...] = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = 15.0
    allow_private: bool = False
    ca: str | None = field(default=None, repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)


def make_client(settings: WebhookSettings) -> httpx.AsyncClient:
    """Returns a client that connects to allowed addresses alone and follows no redirects."""
    context = ssl.create_default_context()
    if settings.ca is not None:
        context.load_verify_locations(cadata=settings.ca)
    # httpx has no parameter for the network below it.
    transport = httpx.AsyncHTTPTransport(verify=context, trust_env=False)
    transport._pool = httpcore.AsyncConnectionPool(
        ssl_context=context,
        max_connections=2,
        max_keepalive_connections=1,
        keepalive_expiry=60.0,
        network_backend=CheckedNetwork(settings.allow_private),
    )
    return httpx.AsyncClient(
        transport=transport,
        timeout=settings.timeout_s,
        follow_redirects=False,
        trust_env=False,
        headers={"user-agent": "sirocco-connector"} | dict(settings.headers),
    )


class WebhookTarget:
    """See `sink.Target`.

    Args:
        settings: where batches go.
        subscriber: whose they are.
        form: of notifications.
        store: keeps the state.
        dead_letters: keeps what the receiver refuses.
        counts: metrics of the sink.
    """

    # Batches whose ends are kept by one write: at full load one write serves sixteen.
    blocks_max = 16

    def __init__(
        self,
        settings: WebhookSettings,
        subscriber: str,
        form: Form,
        store: Store,
        dead_letters: DeadLetters,
        counts: Counts,
    ) -> None:
        self._settings = settings
        self._form: Form = form
        self._head = b'{"subscriber":%s,"notifications":[' % orjson.dumps(subscriber)
        self._signers = [Webhook(secret) for secret in settings.secrets]
        self._store = store
        self._dead_letters = dead_letters
        self._counts = counts
        self._client: httpx.AsyncClient | None = None
        # After the last delivered batch, and what the store has.
        self._done: Saved | None = None
        self._kept: Saved | None = None
        # Of batches that may have been sent after that.
        self._ends: list[str] = []
        self._stopping = asyncio.Event()

    async def open(self) -> Saved | None:
        """See `Target`."""
        self._client = make_client(self._settings)
        self._done = self._kept = await self._store.open()
        self._ends = [] if self._done is None else list(self._done.ends)
        if self._done is not None and self._done.gone:
            if self._done.gone == receiver_mark(self._settings.url):
                raise SinkStopped("gone", f"{_WANTS_NO_MORE}; another `url` begins anew")
            self._done = self._kept = replace(self._done, gone="")
        return self._done

    async def write(self, blocks: Sequence[Block]) -> None:
        """See `Target`."""
        sent = [block for block in blocks if block.rows]
        if sent and self._done is not None:
            for block in sent:
                if block.end and block.end not in self._ends:
                    self._ends.append(block.end)
            await self._keep(self._done)
        for block in blocks:
            if self._stopping.is_set():
                return
            if block.rows:
                await self._deliver(block)
            self._done = block.saved
            if block.end in self._ends:
                self._ends.remove(block.end)
        if len(sent) < self.blocks_max:
            # Otherwise more wait, and the next write keeps it.
            await self._keep(self._done)

    async def _keep(self, saved: Saved | None) -> None:
        if saved is not None:
            self._kept = saved.with_ends(tuple(self._ends))
            await self._store.save(self._kept)

    async def _deliver(self, block: Block) -> None:
        """Sends a batch until the receiver has it, or it is a dead letter.

        Raises:
            SinkStopped: The receiver wants no more.
        """
        body, content_type = self._body(block)
        tries = Tries(self._settings.retry, time.monotonic(), random.random)
        while True:
            outcome = await self._post(block.id, body, content_type)
            decision = tries.after(outcome, time.monotonic(), time.time())
            match decision:
                case Delivered():
                    self._counts.delivered.inc(len(block.rows))
                    return
                case Gone():
                    if self._done is not None:
                        # Also after a restart, and for the instance that takes over.
                        mark = receiver_mark(self._settings.url)
                        self._done = replace(self._done, gone=mark)
                        await self._keep(self._done)
                    raise SinkStopped("gone", _WANTS_NO_MORE)
                case GiveUp(reason):
                    await self._dead_letters.put(block.rows, reason, block.id, now_ms())
                    self._counts.dead(reason, len(block.rows))
                    return
                case TryAgain(pause_s, reason):
                    self._counts.retries.inc()
                    if tries.failures == 1:
                        fields = event("webhook_retries", sink=self._counts.name, reason=reason)
                        logger.warning("the receiver fails; trying again", extra=fields)
                    await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        """Waits; shows other instances meanwhile that this one works."""
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, MOVED_MS / 1_000)):
                    await self._stopping.wait()
                raise TargetUnavailable("stopping", "the sink stops")
            if left_s > MOVED_MS / 1_000 and self._kept is not None:
                await self._store.save(self._kept)

    def _body(self, block: Block) -> tuple[bytes, str]:
        rows = b",".join([row.value for row in block.rows])
        if self._form == "cloudevents":
            return b"[%s]" % rows, "application/cloudevents-batch+json"
        return b"%s%s]}" % (self._head, rows), "application/json"

    async def _post(self, one: str, body: bytes, content_type: str) -> Outcome:
        """Makes one request; bounded in time and in the bytes of its answer."""
        assert self._client is not None
        now = datetime.now(UTC)
        text = body.decode()
        headers = {
            "content-type": content_type,
            "webhook-id": one,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signer.sign(one, now, text) for signer in self._signers),
        }
        try:
            async with (
                asyncio.timeout(self._settings.timeout_s),
                self._client.stream(
                    "POST", self._settings.url, content=body, headers=headers
                ) as response,
            ):
                return await _answer_of(response)
        except (TimeoutError, httpx.TimeoutException):
            return Failed("timeout")
        except (httpx.HTTPError, httpx.InvalidURL, httpcore.ConnectError, ssl.SSLError) as error:
            return Failed("address" if _is_private(error) else "connection")

    def stop(self) -> None:
        """See `Target`."""
        self._stopping.set()

    async def is_free(self) -> bool:
        """See `Target`."""
        return await self._store.is_free()

    async def close(self) -> None:
        """See `Target`."""
        client, self._client = self._client, None
        try:
            # A restart in order repeats nothing.
            await self._keep(self._done)
        finally:
            self._done = self._kept = None
            if client is not None:
                with contextlib.suppress(httpx.HTTPError):
                    await client.aclose()
            await self._dead_letters.close()
            await self._store.close()


async def _answer_of(response: httpx.Response) -> Answered:
    """Reads an answer to its end or a bound, beyond which the connection is closed."""
    size = 0
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_BODY_S):
            async for part in response.aiter_raw():
                size += len(part)
                if size > _ANSWER_BYTES:
                    break
    return Answered(response.status_code, response.headers.get("retry-after"))


def _is_private(error: BaseException | None) -> bool:
    """Whether an error comes of an address that is not allowed; httpx wraps it."""
    seen: Any = error
    while seen is not None:
        if isinstance(seen, PrivateAddressError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
