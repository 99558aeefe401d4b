"""Numbers terms under one key in all evaluators of a simulated cluster, as in a real one."""

from sirocco.model.term_hashing import TermHashing

TERMS = TermHashing("5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e")
