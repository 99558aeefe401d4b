"""SWARM's balancer (SWARM 4)."""
