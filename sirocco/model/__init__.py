"""Frozen value types: text analysis, geometry, objects, queries, limits and errors."""
