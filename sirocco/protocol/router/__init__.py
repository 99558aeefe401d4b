"""The router's decisions: objects to slots, changes of queries to the registry and to slots."""
