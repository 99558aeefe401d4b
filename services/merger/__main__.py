"""Runs one merger: `python -m sirocco.services.merger`."""

from sirocco.runtime.process.quick_end import leave
from sirocco.runtime.process.quick_start import quiet_grpc, uncollected

quiet_grpc()
with uncollected():
    from sirocco.services.main import run
    from sirocco.services.merger.service import MergerService

leave(run(lambda parts, _settings: MergerService(parts)))
