"""Load balancing of each scheme: from measurements to moves or a new map.

`balancers` lists the balancer of each scheme; `view` defines its input and output. A balancer
changes nothing itself: its plan names slots that change their owner, and at most one new map, with
the expected gain and cost of both.
"""
