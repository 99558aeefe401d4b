"""Runs one connector: `python -m sirocco.services.connector`."""

import sys

from sirocco.services.connector.process import run

sys.exit(run())
