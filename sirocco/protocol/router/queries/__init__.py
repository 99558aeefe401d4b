"""Changes of queries: validated, appended to the registry, sent to slots."""
