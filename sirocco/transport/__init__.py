"""How processes reach each other: the log, the map store, the archive; each behind a Protocol."""
