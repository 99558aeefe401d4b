"""Publishers and their sessions."""
