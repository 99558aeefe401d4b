"""Files that commands read: queries, objects, and the lines that they came from."""
