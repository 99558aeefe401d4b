"""Runs one gateway: `python -m sirocco.services.gateway`."""

import sys

from sirocco.services.gateway.process import run

sys.exit(run())
