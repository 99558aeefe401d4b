"""Counts the objects that hold each term."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sirocco.model.text import TextAnalyser, term_hash, tokens_of
from sirocco_spark.columns import bytes_of
from sirocco_spark.inputs import Objects

# Distinct terms that a task sums up before it passes them on; a task of half a million posts has
# about as many.
_TERMS_MAX = 1 << 20

TERMS_DDL = "term long, objects long"
_SCHEMA = pa.schema([("term", pa.int64()), ("objects", pa.int64())])


def term_frequencies(objects: Objects) -> DataFrame:
    """Returns for each term (its hash) the number of objects that hold it."""
    texts = objects.read(("text",)).where(F.col("refusal").isNull()).select("text")
    partial = texts.mapInArrow(_counting, TERMS_DDL)
    return partial.groupBy("term").agg(F.sum("objects").alias("objects"))


def _counting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    analyser = TextAnalyser()
    terms, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    for batch in batches:
        found = analyser.tokens_of_batch(*bytes_of(batch.column("text"))).terms
        fresh, fresh_counts = np.unique(found, return_counts=True)
        terms, places = np.unique(np.concatenate([terms, fresh]), return_inverse=True)
        weights = np.concatenate([counts, fresh_counts])
        counts = np.bincount(places, weights, len(terms)).astype(np.int64)
        if len(terms) > _TERMS_MAX:
            yield _batch(terms, counts)
            terms, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    yield _batch(terms, counts)


def _batch(terms: np.ndarray, counts: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(terms.view(np.int64)), pa.array(counts)], schema=_SCHEMA
    )


def words_of(texts: DataFrame, wanted: set[int]) -> dict[int, str]:
    """Returns the words of hashes, if some texts (column `text`) hold them."""
    words = {w for row in texts.toArrow().column("text").to_pylist() for w in tokens_of(row or "")}
    return {number: word for word in words if (number := term_hash(word)) in wanted}
