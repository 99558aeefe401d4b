"""Real parts on this machine, for tests and local clusters: a Kafka broker and Redis."""
