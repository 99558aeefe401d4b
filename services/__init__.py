"""The four services, thin: settings, servicers, and how they are put together."""
