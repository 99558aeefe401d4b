"""Faults on real processes under constant load: `make faults`, or `python -m tests.faults`."""
