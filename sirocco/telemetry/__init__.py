"""What the services say of themselves: logs and metrics."""
