"""Counts and reports of the load of leaves."""
