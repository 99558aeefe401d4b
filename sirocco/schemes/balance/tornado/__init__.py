"""Tornado's balancer (Tornado 4)."""
