"""Sources of objects and queries: an archive, the topics of a system, or lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sirocco.protocol.contract.messages import INTAKE, REGISTRY
from sirocco_spark import archive, kafka, lines
from sirocco_spark.session import phase


class Objects(Protocol):
    """Objects of some source."""

    @property
    def refused(self) -> list[tuple[str, int]]:
        """(reason, count) of files left out before any object was read."""

    @property
    def numbering(self) -> tuple[str, ...]:
        """Columns that distinguish objects which are equal in all others; may be none.

        They do not depend on how the source is split: lines have none, they count within a file.
        """

    def read(self, columns: Sequence[str]) -> DataFrame:
        """Returns some columns of the objects, and rows with the reasons for non-objects.

        See `columns.OBJECT_TYPES`; `refusal` is null for an object.
        """


@dataclass(frozen=True, slots=True)
class ArchiveObjects:
    """Objects of an archive."""

    session: SparkSession
    index: archive.Index

    @property
    def refused(self) -> list[tuple[str, int]]:
        """See `Objects.refused`."""
        return list(self.index.refused)

    @property
    def numbering(self) -> tuple[str, ...]:
        """See `Objects.numbering`."""
        return ("session", "number")

    def read(self, columns: Sequence[str]) -> DataFrame:
        """See `Objects.read`."""
        return archive.read_objects(self.session, self.index, columns)


@dataclass(frozen=True, slots=True)
class LineObjects:
    """Objects of files of JSON lines."""

    lines: DataFrame

    @property
    def refused(self) -> list[tuple[str, int]]:
        """See `Objects.refused`."""
        return []

    @property
    def numbering(self) -> tuple[str, ...]:
        """See `Objects.numbering`."""
        return ()

    def read(self, columns: Sequence[str]) -> DataFrame:
        """See `Objects.read`."""
        return lines.parse_objects(self.lines, columns)


@dataclass(frozen=True, slots=True)
class TopicObjects:
    """Objects of the topic `intake`."""

    records: DataFrame

    @property
    def refused(self) -> list[tuple[str, int]]:
        """See `Objects.refused`."""
        return []

    @property
    def numbering(self) -> tuple[str, ...]:
        """See `Objects.numbering`."""
        return ("session", "number")

    def read(self, columns: Sequence[str]) -> DataFrame:
        """See `Objects.read`."""
        return kafka.decode_objects(self.records, columns)


def open_objects(session: SparkSession, source: str, job: str) -> Objects:
    """Opens a source of objects, see `job.SOURCES`.

    Raises:
        InvalidArgument: There is no such source.
    """
    kind, _, rest = source.partition(":")
    if kind == "archive":
        with phase(session, job, "looking through the archive"):
            return ArchiveObjects(session, archive.index_archive(session, rest))
    if kind == "kafka":
        cluster = kafka.parse_cluster(rest)
        return TopicObjects(kafka.read_topic(session, cluster, INTAKE))
    return LineObjects(lines.read_lines(session, source, "objects"))


def open_specs(session: SparkSession, source: str) -> DataFrame:
    """Opens a source of queries as canonical JSON: columns `spec` and `refusal`, one is null.

    Raises:
        InvalidArgument: There is no such source, or it is an archive, which stores no texts of
            queries: `distribution` reads those in their stored form.
    """
    kind, _, rest = source.partition(":")
    if kind == "kafka":
        cluster = kafka.parse_cluster(rest)
        return kafka.decode_queries(kafka.read_topic(session, cluster, REGISTRY))
    return lines.parse_queries(lines.read_lines(session, source, "queries"))


def refused_of(frame: DataFrame) -> list[tuple[str, int]]:
    """Counts the rejected rows by reason."""
    counts = frame.where(F.col("refusal").isNotNull()).groupBy("refusal").count()
    return [(row["refusal"], row["count"]) for row in counts.toArrow().to_pylist()]
