"""Shared by all balancers: view, draft, placement, plans."""
