"""What the services report about themselves: logs and metrics."""
