"""The engine of Sirocco, and the command line tool."""

__version__ = "0.1.0"
