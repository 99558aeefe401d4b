"""`sirocco replay`: files in, every match out, on real services."""
