"""PS2Stream's hybrid: a kd-tree whose leaves are split by text if that is cheaper."""
