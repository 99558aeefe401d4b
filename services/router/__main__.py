"""Runs one router: `python -m sirocco.services.router`."""

import sys

from sirocco.services.main import run
from sirocco.services.router.service import RouterService

sys.exit(run(lambda parts, _settings: RouterService(parts)))
