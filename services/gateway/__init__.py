"""The HTTP gateway: a client of the cluster for browsers and programs that speak HTTP alone."""
