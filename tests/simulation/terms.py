"""How the evaluators of a simulated cluster number terms: under one key, as those of a real one."""

from sirocco.model.term_hashing import TermHashing

TERMS = TermHashing("5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e")
