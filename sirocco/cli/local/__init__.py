"""`sirocco local`: a whole cluster as processes on this machine."""
