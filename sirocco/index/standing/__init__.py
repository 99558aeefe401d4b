"""The index of standing queries: finds those that an arriving object matches."""
