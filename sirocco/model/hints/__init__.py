"""Hints for people who read queries and matches: warnings, and places of words."""
