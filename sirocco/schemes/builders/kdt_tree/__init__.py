"""PS2Stream's hybrid cut: a kd-tree whose leaves are cut by text where that is cheaper."""
