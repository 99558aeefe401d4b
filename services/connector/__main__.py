"""Runs one connector: `python -m sirocco.services.connector`."""

from sirocco.runtime.process.quick_end import leave
from sirocco.runtime.process.quick_start import uncollected

with uncollected():
    from sirocco.services.connector.process import run

leave(run())
