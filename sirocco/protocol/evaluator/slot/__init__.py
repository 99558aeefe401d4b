"""One slot: its log, its state, its checkpoint and its archived slices."""
