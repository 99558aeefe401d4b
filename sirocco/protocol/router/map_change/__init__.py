"""A change of the partition map, as routers carry it out."""
