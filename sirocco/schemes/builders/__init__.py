"""Builders of partition maps, one for each way to cut."""
