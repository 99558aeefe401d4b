"""`sirocco search`: one-off questions about what has arrived so far."""
