"""Where a query is placed and an object is sent, for people who ask."""
