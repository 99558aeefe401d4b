"""The index of standing queries: which of them an arriving object matches."""
