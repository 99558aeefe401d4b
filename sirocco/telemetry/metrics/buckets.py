"""The bounds of histograms that several services share."""

from __future__ import annotations

# From 1 ms to 10 s: a notification takes 20 to 200 ms, a failover some seconds.
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# A search takes from a fraction of a millisecond to its deadline.
SEARCH_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0)
