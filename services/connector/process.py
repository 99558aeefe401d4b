"""Runs the sources and sinks of one configuration: start, SIGTERM, exit.

When one of them cannot go on, the process ends the others in order and exits with an error: the
supervisor then starts it again, with pauses that operators see.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sirocco_client import AsyncClient, Retry

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.process.environment import Reader
from sirocco.runtime.process.health import HealthServer
from sirocco.services.connector.config import ConnectorConfig, load_config
from sirocco.services.connector.leave import end_within
from sirocco.services.connector.runner import Parts, Runner
from sirocco.telemetry.audit import AUDIT, LEVELS
from sirocco.telemetry.logging import configure, event
from sirocco.telemetry.metrics.connector import ConnectorMetrics
from sirocco.telemetry.metrics.process import ProcessMetrics, new_registry

logger = logging.getLogger(__name__)

EXIT_FAILURE = 1
EXIT_SETTINGS = 2

# A call that the cluster cannot take is tried again for hours: a connector has nothing else to do.
_RETRY = Retry(attempts=5_000)

# For what is under way when the process is asked to end. Pods get 40 s.
STOP_S = 20.0

# For threads, once everything has ended: one of them may wait for a name that does not resolve.
_LEAVE_S = 2.0

# A loop that has not turned for so long is stuck.
_STUCK_S = 60.0
_BEAT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of the process, from the environment.

    Attributes:
        host: address at which metrics and probes are served.
        metrics_port: of /metrics and the probes; 0 for a free one.
        log_level: least level of the log lines on stderr.
        audit: one of `audit.LEVELS`; a configuration changes when a process starts with it.
        name: the operator's name of the process.
        config: path of the configuration.
    """

    host: str = "127.0.0.1"
    metrics_port: int = 0
    log_level: str = "info"
    audit: str = "off"
    name: str = ""
    config: str = ""


def from_environment() -> ProcessSettings:
    """Reads all settings.

    Raises:
        InvalidArgument: One is out of range; `field` is the variable's name.
    """
    read = Reader(os.environ)
    return ProcessSettings(
        host=read.text("SIROCCO_HOST", "127.0.0.1"),
        metrics_port=read.integer("SIROCCO_HTTP_PORT", 0, 65_535, least=0),
        log_level=read.choice("SIROCCO_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        audit=read.choice("SIROCCO_AUDIT", "off", LEVELS),
        name=read.text("SIROCCO_NAME", ""),
        config=read.text("SIROCCO_CONNECTOR_CONFIG", ""),
    )


def run(path: str | Path | None = None) -> int:
    """Runs one connector until SIGTERM; returns the exit status.

    Args:
        path: of the configuration; None: of `SIROCCO_CONNECTOR_CONFIG`.
    """
    try:
        settings = from_environment()
        if path is None and not settings.config:
            raise InvalidArgument("is not set in the environment", field="SIROCCO_CONNECTOR_CONFIG")
        config = load_config(Path(path or settings.config))
    except InvalidArgument as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return EXIT_SETTINGS
    configure(settings.log_level)
    AUDIT.set_level(settings.audit)
    for action, named in (("start_source", config.sources), ("start_sink", config.sinks)):
        AUDIT.changed(action, list(named), {}, {"connector": settings.name or "connector"})
    try:
        connector = Connector(config, settings)
    except OSError as error:
        logger.error(str(error), extra=event("cannot_start", kind=type(error).__name__))
        return EXIT_FAILURE
    # Imported modules live as long as the process: the collector skips them.
    gc.collect()
    gc.freeze()
    name = settings.name or "connector"
    extra = event("listening", member=name, grpc="", http=connector.metrics_address)
    logger.info("started", extra=extra)
    is_clean = asyncio.run(_run_to_end(connector))
    logger.info("stopped", extra=event("stopped", member=name))
    return 0 if is_clean else EXIT_FAILURE


async def _run_to_end(connector: Connector) -> bool:
    is_clean = await connector.run((signal.SIGTERM, signal.SIGINT))
    end_within(_LEAVE_S, 0 if is_clean else EXIT_FAILURE)
    return is_clean


@dataclass(slots=True)
class _Health:
    """What probes ask for; read by the thread that answers them."""

    beat_s: float = field(default_factory=time.monotonic)
    runners: tuple[Runner, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return time.monotonic() - self.beat_s < _STUCK_S

    @property
    def is_ready(self) -> bool:
        return bool(self.runners) and all(each.is_ready for each in self.runners)


class Connector:
    """All sources and sinks of one configuration, on one loop.

    Attributes:
        registry: of the metrics.
        metrics_address: host:port of /metrics and the probes.
    """

    def __init__(self, config: ConnectorConfig, settings: ProcessSettings) -> None:
        self._config = config
        self.registry = new_registry()
        self._metrics = ConnectorMetrics(self.registry)
        ProcessMetrics(self.registry, "connector", settings.name or "connector")
        self._health = _Health()
        self._server = HealthServer(
            settings.host,
            settings.metrics_port,
            self.registry,
            is_healthy=lambda: self._health.is_healthy,
            is_ready=lambda: self._health.is_ready,
            refresh=lambda: None,
        )
        self.metrics_address = self._server.address
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Ends everything; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self, signals: Iterable[int] = ()) -> bool:
        """Runs until `stop`, one of the signals, or until one cannot go on.

        Returns:
            Whether all of them worked to the end.
        """
        self._loop = asyncio.get_running_loop()
        for number in signals:
            self._loop.add_signal_handler(number, self._stopping.set)
        config = self._config
        beating = asyncio.create_task(self._beat_on())
        client = AsyncClient(
            config.router,
            tls=config.tls(),
            token=config.token,
            retry=_RETRY,
            timeout_s=config.timeout_s,
        )
        try:
            parts = Parts(client, self._metrics, STOP_S)
            configs = (*config.sources.values(), *config.sinks.values())
            runners = tuple(each.open(parts) for each in configs)
            self._health.runners = runners
            return await self._run_all(runners)
        finally:
            self._health.runners = ()
            await client.close()
            beating.cancel()
            self._server.stop()

    async def _run_all(self, runners: tuple[Runner, ...]) -> bool:
        tasks = {asyncio.create_task(each.run(), name=each.name): each for each in runners}
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        is_clean = True
        for task, runner in tasks.items():
            if task.done():
                is_clean = False
                _report(runner, task)
            task.cancel()
        late: set[asyncio.Task[None]] = set()
        if running := [task for task in tasks if not task.done()]:
            # Each bounds its own end; this one is for those that fail to.
            ended, late = await asyncio.wait(running, timeout=STOP_S + 5)
            for task in ended:
                if not task.cancelled() and task.exception() is not None:
                    is_clean = False
                    _report(tasks[task], task)
        for task in late:
            is_clean = False
            extra = event("runner_stuck", runner=tasks[task].name)
            logger.error("a source or sink did not end in time", extra=extra)
        return is_clean

    async def _beat_on(self) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                self._health.beat_s = time.monotonic()
                await asyncio.sleep(_BEAT_S)


def _report(runner: Runner, task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    logger.error(
        "ended by itself" if error is None else str(error),
        extra=event("runner_failed", runner=runner.name, kind=type(error).__name__),
        exc_info=error,
    )
