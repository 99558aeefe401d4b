"""Runs a service as a process: settings, adapters, start, SIGTERM, exit."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.grpc.security import secured
from sirocco.runtime.process.process_tuning import tune
from sirocco.runtime.process.retries import retried
from sirocco.runtime.service import Parts, Service
from sirocco.runtime.settings import ProcessSettings, from_environment
from sirocco.telemetry.audit import AUDIT
from sirocco.telemetry.call_sampler import TraceSettings
from sirocco.telemetry.logging import configure, event
from sirocco.transport.archive import Archive, folder_of, open_archive
from sirocco.transport.errors import TransportError
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.redis_map_store import RedisMapStore

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Tracing

logger = logging.getLogger(__name__)

EXIT_FAILURE = 1
EXIT_SETTINGS = 2

# How often the main thread checks whether the service has ended by itself.
LOOK_S = 0.5


def run(make: Callable[[Parts, ProcessSettings], Service]) -> int:
    """Runs one service until SIGTERM or failure; returns the exit status."""
    try:
        settings = from_environment()
        settings.check_files()
    except InvalidArgument as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return EXIT_SETTINGS
    configure(settings.log_level)
    AUDIT.set_level(settings.audit)
    tune()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        return _serve(make, settings, stopping)
    except (InvalidArgument, TransportError, OSError) as error:
        logger.error(str(error), extra=event("cannot_start", kind=type(error).__name__))
        return EXIT_SETTINGS if isinstance(error, InvalidArgument) else EXIT_FAILURE


def _archive(settings: ProcessSettings) -> Archive:
    try:
        return open_archive(folder_of(settings.archive, settings.cluster.cluster))
    except ValueError as error:
        raise InvalidArgument(str(error), field="SIROCCO_ARCHIVE") from error


def _tracing(settings: TraceSettings) -> Tracing | None:
    """Returns what traces calls; its packages are an extra."""
    if not settings.endpoint:
        return None
    try:
        from sirocco.telemetry.spans import Tracing  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise InvalidArgument(
            f"{error.name} is missing: pip install 'sirocco[otel]'", field="SIROCCO_TRACES"
        ) from error
    return Tracing(settings)


def _serve(
    make: Callable[[Parts, ProcessSettings], Service],
    settings: ProcessSettings,
    stopping: threading.Event,
) -> int:
    cluster = settings.cluster
    security = secured(settings.security)
    tracing = _tracing(settings.traces)
    log = KafkaLog(settings.kafka)
    store = RedisMapStore(settings.redis, prefix=cluster.cluster, tls_ca=settings.redis_ca)
    archive = _archive(settings)
    # All services of a cluster start at once, and so may the brokers: a topic that was just created
    # has no leader for a moment.
    retried(partial(log.create_topics, cluster.topics()), stopping)
    parts = Parts(
        settings=cluster,
        log=log,
        store=store,
        archive=archive,
        host=settings.host,
        grpc_port=settings.grpc_port,
        http_port=settings.http_port,
        security=security,
        name=settings.name,
        tracing=tracing,
    )
    service = make(parts, settings)
    service.start()
    # Imported modules and compiled kernels live as long as the process: the collector skips them.
    gc.collect()
    gc.freeze()
    while not stopping.wait(LOOK_S) and service.failure is None:
        pass
    is_clean = service.stop()
    log.close()
    store.close()
    if tracing is not None:
        tracing.close()
    return 0 if is_clean else EXIT_FAILURE
