"""`sirocco publish`: publishes objects from a file or standard input to a cluster."""
