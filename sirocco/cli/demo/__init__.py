"""`sirocco demo`: a stream of posts over real cities, its queries, and what it shows."""
