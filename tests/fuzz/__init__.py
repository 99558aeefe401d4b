"""Random operations on structures with client-chosen keys, under keys chosen to collide."""
