"""`sirocco publish`: objects from a file or standard input into a cluster."""
