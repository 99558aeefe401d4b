"""How each scheme adjusts to load: what was measured goes in, moves or a new map come out.

`balancers` says which balancer goes with which scheme, `view` what it is told and answers. A
balancer changes nothing itself: its plan names slots that change hands, and at most one map to
change to, with what both are expected to gain and to cost.
"""
