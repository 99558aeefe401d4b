"""The coordinator's decisions: which member owns what, and when load moves."""
