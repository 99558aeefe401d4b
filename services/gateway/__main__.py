"""Runs one gateway: `python -m sirocco.services.gateway`."""

from sirocco.runtime.process.quick_end import leave
from sirocco.runtime.process.quick_start import uncollected

with uncollected():
    from sirocco.services.gateway.process import run

leave(run())
