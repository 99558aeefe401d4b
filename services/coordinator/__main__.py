"""Runs one coordinator: `python -m sirocco.services.coordinator`."""

from sirocco.runtime.process.quick_end import leave
from sirocco.runtime.process.quick_start import quiet_grpc, uncollected

quiet_grpc()
with uncollected():
    from sirocco.runtime.first_map import first_map
    from sirocco.runtime.service import Parts
    from sirocco.runtime.settings import ProcessSettings
    from sirocco.services.coordinator.service import CoordinatorService
    from sirocco.services.main import run


def coordinator(parts: Parts, settings: ProcessSettings) -> CoordinatorService:
    """Creates the coordinator with the initial map of a new cluster."""
    return CoordinatorService(parts, first_map(parts.settings, settings.sample), 1)


leave(run(coordinator))
