"""`sirocco explain`: how a query is understood, where it is placed, why an object matches."""
