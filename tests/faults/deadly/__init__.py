"""Makes an object deadly in the tested processes."""
