"""SSTD's balancer (SSTD 5)."""
