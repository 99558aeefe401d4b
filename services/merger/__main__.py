"""Runs one merger: `python -m services.merger`."""

import sys

from services.main import run
from services.merger.service import MergerService

sys.exit(run(lambda parts, _settings: MergerService(parts)))
