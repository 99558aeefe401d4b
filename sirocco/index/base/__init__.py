"""Tables and arrays used by both the index of queries and the store of objects."""
