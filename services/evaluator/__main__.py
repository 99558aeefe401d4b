"""Runs one evaluator: `python -m sirocco.services.evaluator`."""

from sirocco.runtime.process.quick_end import leave
from sirocco.runtime.process.quick_start import quiet_grpc, uncollected

quiet_grpc()
with uncollected():
    from sirocco.services.evaluator.service import EvaluatorService
    from sirocco.services.main import run

leave(run(lambda parts, _settings: EvaluatorService(parts)))
