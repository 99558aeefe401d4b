"""Explains where a query is placed and where an object is sent."""
