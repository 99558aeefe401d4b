"""Random work against structures that hold what clients choose, under keys chosen for that."""
