"""Queries and regions as typed values, as JSON and as messages."""
