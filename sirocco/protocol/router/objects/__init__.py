"""Objects: publish sessions, intake partitions, and the records of slots."""
