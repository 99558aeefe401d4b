"""The loop that drives a state machine on a real log, and what it carries out."""
