"""Runs one evaluator: `python -m sirocco.services.evaluator`."""

from sirocco.runtime.process.quick_end import leave
from sirocco.runtime.process.quick_start import uncollected

with uncollected():
    from sirocco.services.evaluator.service import EvaluatorService
    from sirocco.services.main import run

leave(run(lambda parts, _settings: EvaluatorService(parts)))
