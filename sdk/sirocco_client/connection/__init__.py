"""Servers: which is called, when again, and what a failure means."""
