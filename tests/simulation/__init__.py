"""The whole cluster in one process, in virtual time, from one seed, under faults."""
