"""The workload that builders and balancers work from: samples, statistics, cost."""
