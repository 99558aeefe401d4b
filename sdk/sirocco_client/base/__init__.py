"""Members, numbers and durations that a user gives, checked."""
