"""What all balancers share: view, draft, placement, plans."""
