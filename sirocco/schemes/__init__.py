"""Ways to cut the workload: maps, routing arrays, cost model, builders."""
