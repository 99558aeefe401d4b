"""The messages between the services, and the effects that they ask their shell for."""
