"""Objects as they are published, received and found."""
