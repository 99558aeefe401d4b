"""What the services say to each other, and the effects that they ask their shell for."""
