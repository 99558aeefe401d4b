"""`sirocco demo`: a stream of posts over real cities, its queries, and its view."""
