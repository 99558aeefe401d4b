"""The coordinator's decisions: who owns what, and when load moves."""
