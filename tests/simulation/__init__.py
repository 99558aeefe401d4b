"""Simulates the whole cluster in one process, in virtual time, from one seed, with faults."""
