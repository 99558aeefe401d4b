"""Runs a gateway as a process: settings, start, SIGTERM, exit."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.process.process_tuning import tune
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import from_environment
from sirocco.telemetry.logging import configure, event

logger = logging.getLogger(__name__)

EXIT_FAILURE = 1
EXIT_SETTINGS = 2


def run() -> int:
    """Runs one gateway until SIGTERM; returns the exit status."""
    try:
        settings = from_environment()
        settings.tls()
    except InvalidArgument as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return EXIT_SETTINGS
    configure(settings.log_level)
    tune()
    # Each request it cannot read would be a line.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        gateway = Gateway(settings)
    except OSError as error:
        logger.error(str(error), extra=event("cannot_start", kind=type(error).__name__))
        return EXIT_FAILURE
    # Imported modules live as long as the process: the collector skips them.
    gc.collect()
    gc.freeze()
    logger.info(
        "",
        extra=event("listening", member=settings.name or "gateway", grpc="", http=gateway.address),
    )
    asyncio.run(gateway.serve((signal.SIGTERM, signal.SIGINT)))
    logger.info("stopped", extra=event("stopped", member=settings.name or "gateway"))
    return 0
