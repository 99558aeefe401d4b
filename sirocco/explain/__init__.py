"""Why an object matches a query, and what a query costs: for the command line and the gateway."""
