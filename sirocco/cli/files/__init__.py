"""Files that commands read: queries, objects, and their line numbers."""
