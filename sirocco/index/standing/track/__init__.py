"""Tracked values: which query they are inside of, and their last objects."""
