"""Limits on the size of inputs, all in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of one object or one query; each bound is inclusive."""

    # A record on a topic holds 256 objects and must stay below Kafka's default of 1 MB a message on
    # average; single long posts get a record of their own. Longer texts are documents, for which
    # one place and one time make little sense.
    text_bytes: int = 65_536

    # Attributes are sent and stored with the object on every hop: a quarter of the text.
    attribute_bytes: int = 16_384

    # Nesting of arrays and objects, including the attributes themselves: half of what JSON writers
    # support, so that what one process has read another one can write.
    attribute_depth: int = 128

    # Ids are repeated in dictionaries of deliveries and in log lines.
    id_bytes: int = 256

    # |ts|: 100 million days around 1970 (the range of dates in ECMAScript). Every such time is
    # exact as f64, and adding any duration below cannot overflow i64.
    ts_ms: int = 8_640_000_000_000_000

    # 1,000 years: longer than any retention, and sums of times stay exact in f64.
    duration_ms: int = 31_557_600_000_000

    # Source text of one expression: enough for a person or a form.
    expression_bytes: int = 16_384

    # Occurrences of terms in one expression, counted before simplification.
    expression_terms: int = 1_024

    # Bytes of all beginnings (`evacuat*`) of an expression: 256 alternatives of eight letters. Each
    # is a node of some 200 bytes in every slot that holds the query: 31 beginnings of 500 bytes
    # took 2.7 MB.
    beginning_bytes: int = 2_048

    # Nesting of parentheses and NOTs. The parser uses four stack frames per level, so this stays an
    # order of magnitude below Python's recursion limit.
    expression_depth: int = 32

    # Fixed by the public contract. Each conjunction becomes an entry of the index.
    conjunctions: int = 256

    # Steps (products of two conjunctions, tests of absorption) spent to reach the disjunctive
    # form: 5 to 20 ms of one core, beside the event loop.
    expression_steps: int = 1_000_000

    # Terms of all conjunctions together. Every slot that the query's region meets stores them, with
    # their index entries: 256 conjunctions of 700 terms, from 5 KB of source, took 9 MiB in each
    # evaluator. A hundred times what people and forms write.
    expanded_terms: int = 8_192

    # Whether quotes and stars that are errors count as blanks: they had no meaning in queries that
    # are stored.
    forgives_marks: bool = False

    # Vertices of all rings together. A point in the polygon's box is tested against each edge: in 1
    # to 3 ns, but in up to 90 ns where the edge passes through the point within the rounding
    # error, as the answer is exact. So one query costs 10 to 30 us an object, and some 900 us where
    # somebody chose all its edges, and the object, for that.
    vertices: int = 10_000

    # Results of one question are sent in one message, about 100 bytes each.
    k: int = 10_000

    # Keywords of a ranked query: each adds a list to the merge of candidates.
    keywords: int = 64

    # Conditions of one `where`, and alternatives of one `in`: evaluated for each candidate object.
    conditions: int = 64
    alternatives: int = 1_024

    # One `where` as JSON. Records of slots hold it twice beside the rest of the query, and records
    # of merged steps hold it once for each due query: a sixteenth of the log's limit.
    where_bytes: int = 262_144


DEFAULT_LIMITS = Limits()

# For queries that another process has accepted and the log stores: later limits do not remove a
# query. Whether its records fit the log is checked nevertheless.
STORED_LIMITS = replace(
    DEFAULT_LIMITS,
    beginning_bytes=1 << 40,
    expanded_terms=1 << 40,
    where_bytes=1 << 24,
    forgives_marks=True,
)
