"""The workload used by builders and balancers: samples, statistics, cost."""
