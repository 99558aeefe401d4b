"""Builders of partition maps, one per scheme."""
