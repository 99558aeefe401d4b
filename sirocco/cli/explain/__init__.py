"""`sirocco explain`: the meaning of a query, its places, and why an object matches."""
