"""What the Spark jobs have in common: inputs, passes over objects and queries, outputs."""
