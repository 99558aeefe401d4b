"""Workloads: seeded streams of objects and queries, replay of files, measuring."""
