"""How large inputs may be, all in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of what one object or one query may hold; each bound is inclusive."""

    # A record on a topic carries 256 objects and has to stay below Kafka's default of 1 MB
    # a message on average; single long posts are cut into their own record. Longer texts are
    # documents, for which one place and one time make little sense.
    text_bytes: int = 65_536

    # Attributes travel and are stored with the object in every hop: a quarter of the text.
    attribute_bytes: int = 16_384

    # Arrays and objects within each other, the attributes themselves included: half of what
    # writers of JSON go down to, so that what one process has read another one can write.
    attribute_depth: int = 128

    # Ids are repeated in dictionaries of deliveries and in log lines.
    id_bytes: int = 256

    # |ts|: 100 million days around 1970 (the range of dates in ECMAScript). Every such time is
    # exact as f64, and adding any duration below cannot overflow i64.
    ts_ms: int = 8_640_000_000_000_000

    # 1,000 years: longer than any retention, and sums of times stay exact in f64.
    duration_ms: int = 31_557_600_000_000

    # Source text of one expression: what a person or a form can produce.
    expression_bytes: int = 16_384

    # Occurrences of terms in one expression, counted before simplification.
    expression_terms: int = 1_024

    # Parentheses and NOTs within each other. The parser uses four stack frames a level, so this
    # keeps it an order of magnitude below Python's recursion limit.
    expression_depth: int = 32

    # Fixed by the public contract. Each conjunction becomes an own entry of the index.
    conjunctions: int = 256

    # Steps (products of two conjunctions, tests of absorption) spent to reach the disjunctive
    # form: 5 to 20 ms of one core, beside the event loop.
    expression_steps: int = 1_000_000

    # Terms of all conjunctions together. Each is stored by every slot that the query's region
    # meets, with its entry of the index: 256 conjunctions of 700 terms, which 5 KB of source make,
    # took 9 MiB in each evaluator. A hundred times what people and forms write.
    expanded_terms: int = 8_192

    # Vertices of all rings together. A point in the polygon's box is tested against each edge
    # (about 1 ns), so one query costs at most some 10 us an object.
    vertices: int = 10_000

    # Results of one question travel in one message, about 100 bytes each.
    k: int = 10_000

    # Keywords of a ranked query: each adds a list to the merge of candidates.
    keywords: int = 64

    # Conditions of one `where`, and alternatives of one `in`: evaluated per candidate object.
    conditions: int = 64
    alternatives: int = 1_024

    # One `where` as JSON. Records of slots hold it twice beside the rest of the query, and what
    # merges steps holds it once for each query that is due: a sixteenth of what the log takes.
    where_bytes: int = 262_144


DEFAULT_LIMITS = Limits()

# Of what another process has accepted and what stands in the log: later limits do not take
# a query away. Whether its records fit the log is checked all the same.
STORED_LIMITS = replace(DEFAULT_LIMITS, expanded_terms=1 << 40, where_bytes=1 << 24)
