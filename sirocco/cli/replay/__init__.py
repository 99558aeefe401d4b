"""`sirocco replay`: replays files on real services, and writes every match."""
