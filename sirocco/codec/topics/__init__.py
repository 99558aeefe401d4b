"""The messages of each topic ⇄ their requests; `hops` has the table."""
