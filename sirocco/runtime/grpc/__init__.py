"""gRPC servers and channels: edge, tokens, TLS, shares, errors."""
