"""Connectors: sources publish what other systems have, sinks hand notifications on to them."""
