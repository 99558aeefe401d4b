"""What helps people to read queries and their matches: warnings, and where words stand."""
