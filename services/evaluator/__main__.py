"""Runs one evaluator: `python -m services.evaluator`."""

import sys

from services.evaluator.service import EvaluatorService
from services.main import run

sys.exit(run(lambda parts, _settings: EvaluatorService(parts)))
