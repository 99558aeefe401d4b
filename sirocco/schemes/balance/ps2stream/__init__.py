"""PS2Stream's balancer (PS2Stream V)."""
