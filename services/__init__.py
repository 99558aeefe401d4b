"""The services, thin: settings, servicers and assembly."""
