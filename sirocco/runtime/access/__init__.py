"""JWTs of an OpenID Connect issuer: its keys, checks of tokens, what claims open."""
