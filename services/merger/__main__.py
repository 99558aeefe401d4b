"""Runs one merger: `python -m sirocco.services.merger`."""

import sys

from sirocco.services.main import run
from sirocco.services.merger.service import MergerService

sys.exit(run(lambda parts, _settings: MergerService(parts)))
