"""Shared by all commands: output, progress, numbers, errors, the connection to a cluster."""
