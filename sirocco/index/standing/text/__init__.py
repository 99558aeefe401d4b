"""What the texts of objects hold for the queries of an index."""
