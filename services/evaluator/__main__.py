"""Runs one evaluator: `python -m sirocco.services.evaluator`."""

import sys

from sirocco.services.evaluator.service import EvaluatorService
from sirocco.services.main import run

sys.exit(run(lambda parts, _settings: EvaluatorService(parts)))
