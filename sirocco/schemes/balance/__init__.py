"""How each scheme adjusts to load: what was measured goes in, moves or a new map come out."""
