"""What all commands share: output, progress, numbers, errors, the connection to a cluster."""
