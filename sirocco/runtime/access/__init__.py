"""What every process has: clock, lease, health, retries, tuning."""
