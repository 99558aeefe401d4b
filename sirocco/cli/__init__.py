"""The command line tool `sirocco`."""
