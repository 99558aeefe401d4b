"""What counts in the limits of tenants and callers: rates, bytes and steps of queries."""
