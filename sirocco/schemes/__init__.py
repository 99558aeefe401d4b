"""Ways to partition the workload: maps, routing arrays, cost model, builders."""
