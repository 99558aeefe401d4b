"""Runs one coordinator: `python -m services.coordinator`."""

import sys

from services.coordinator.service import CoordinatorService
from services.main import run
from sirocco.runtime.first_map import first_map
from sirocco.runtime.service import Parts
from sirocco.runtime.settings import ProcessSettings


def coordinator(parts: Parts, settings: ProcessSettings) -> CoordinatorService:
    """Creates the coordinator with the initial map of a new cluster."""
    return CoordinatorService(parts, first_map(parts.settings, settings.sample), 1)


sys.exit(run(coordinator))
