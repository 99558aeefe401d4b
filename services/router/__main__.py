"""Runs one router: `python -m sirocco.services.router`."""

from sirocco.runtime.process.quick_end import leave
from sirocco.runtime.process.quick_start import quiet_grpc, uncollected

quiet_grpc()
with uncollected():
    from sirocco.services.main import run
    from sirocco.services.router.service import RouterService

leave(run(lambda parts, _settings: RouterService(parts)))
