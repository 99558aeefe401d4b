"""What evaluators count and report of the load of leaves."""
