"""The four services, thin: settings, servicers and assembly."""
