"""Tracked values: which of them are inside which query, and where they were last."""
