"""Newline-delimited JSON as an input, plain or gzip, as the command line tool reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import orjson
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name by which Spark's users know it

from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import load_json
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.query import canonical, parse_query
from sirocco_spark.columns import ddl_of, object_batch, refusal_batch

QUERY_DDL = "spec string, refusal string"
QUERY_SCHEMA = pa.schema([("spec", pa.string()), ("refusal", pa.string())])


def read_lines(session: SparkSession, paths: str, field: str) -> DataFrame:
    """Returns the lines that are not blank, column `value`.

    Raises:
        InvalidArgument: There is no such file.
    """
    try:
        lines = session.read.text(paths)
    except AnalysisException as error:
        raise InvalidArgument(
            f"cannot read {paths} ({error.getCondition()})", field=field
        ) from None
    lines = lines.where(F.col("value").rlike(r"\S"))
    # A gzip file cannot be split: one task unpacks it, but all of them share the further work.
    wanted = session.sparkContext.defaultParallelism
    return lines if lines.rdd.getNumPartitions() >= wanted else lines.repartition(wanted)


def parse_objects(lines: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Returns some columns of the lines' objects; other lines give the reason."""
    return lines.select("value").mapInArrow(_parsing(tuple(columns)), ddl_of(columns))


def _parsing(columns: tuple[str, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Table]]:
    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, reasons = ObjectColumnsBuilder(), []
            for line in batch.column("value").to_pylist():
                try:
                    rows.add(parse_object(line))
                except InvalidArgument as error:
                    reasons.append(reason_of(error))
            if len(rows):
                yield object_batch(rows.build(), columns)
            if reasons:
                yield refusal_batch(reasons, columns)

    return parse


def parse_queries(lines: DataFrame) -> DataFrame:
    """Returns the queries of lines as canonical JSON; other lines give the reason."""
    return lines.select("value").mapInArrow(_parse_queries, QUERY_DDL)


def _parse_queries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield query_batch(batch.column("value").to_pylist())


def query_batch(lines: Sequence[str]) -> pa.RecordBatch:
    """Returns (spec, refusal) of lines; one of them is null."""
    specs: list[str | None] = []
    reasons: list[str | None] = []
    for line in lines:
        spec = reason = None
        try:
            spec = orjson.dumps(canonical(parse_query(load_json(line, "query")))).decode()
        except InvalidArgument as error:
            reason = reason_of(error)
        specs.append(spec)
        reasons.append(reason)
    return pa.RecordBatch.from_arrays(
        [pa.array(specs, pa.string()), pa.array(reasons, pa.string())], schema=QUERY_SCHEMA
    )


def reason_of(error: InvalidArgument) -> str:
    """Returns the error in few words, so that equal errors are counted together."""
    text = str(error)
    return text.partition(": unexpected")[0] if len(text) < 200 else text[:200]
