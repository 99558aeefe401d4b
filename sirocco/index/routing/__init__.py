"""What a router looks up for each object."""
