"""The standing queries of one slot, of all kinds."""
