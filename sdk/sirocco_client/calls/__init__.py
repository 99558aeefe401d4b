"""Changes of queries, searches, and the state of the cluster: their states and answers."""
