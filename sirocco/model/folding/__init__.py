"""Queries to which accents do not matter (`"fold": true`)."""
