"""Tables and arrays that both the index of queries and the store of objects are built of."""
