"""`sirocco search`: one-off searches over the objects so far."""
