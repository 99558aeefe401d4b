"""Runs one router: `python -m services.router`."""

import sys

from services.main import run
from services.router.service import RouterService

sys.exit(run(lambda parts, _settings: RouterService(parts)))
