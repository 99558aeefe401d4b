"""Topics of a running system as an input: `intake` for objects, `registry` for queries.

The records are read by Spark's Kafka connector if it is on the class path (`--packages
org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION`) and supports the broker's settings, else by our
own client, a range of offsets for each task. In both cases they are rows of the connector's schema,
decoded by the services' own codec.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sirocco.codec.hops import read_record
from sirocco.model.errors import InvalidArgument
from sirocco.model.query import canonical
from sirocco.protocol.contract.messages import INTAKE, NO_REVISION, REGISTRY, Change, IntakeObjects
from sirocco.transport.calls import METHOD_HEADER
from sirocco.transport.errors import UnknownTopic
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings
from sirocco_spark.columns import ddl_of, object_batch, refusal_batch
from sirocco_spark.lines import QUERY_DDL, QUERY_SCHEMA
from sirocco_spark.session import in_tasks, java_of

# Offsets of one task of our own client: records of `intake` hold up to some thousand objects.
TASK_OFFSETS = 2_000
POLL_S = 1.0
# Polls of a task for existing records, before it reports that they are missing.
POLLS_EMPTY_MAX = 30

RECORD_DDL = "partition int, offset long, value binary, method string"
_RECORD_SCHEMA = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "value": pa.binary(),
        "method": pa.string(),
    }
)
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kafka cluster and the Sirocco cluster in it.

    Attributes:
        bootstrap: HOST:PORT, several with commas.
        name: Of the Sirocco cluster, the prefix of its topics; empty for none.
    """

    bootstrap: str
    name: str

    @property
    def prefix(self) -> str:
        """The prefix of the names of topics."""
        return f"{self.name}." if self.name else ""

    def settings(self, environment: Mapping[str, str] | None = None) -> KafkaSettings:
        """Returns the settings of our own client; secrets come from the services' variables."""
        read = os.environ if environment is None else environment

        def of(name: str, default: str = "") -> str:
            return read.get(f"SIROCCO_KAFKA_{name}", default)

        return KafkaSettings(
            bootstrap=self.bootstrap,
            security_protocol=of("SECURITY", "plaintext").upper(),
            sasl_mechanism=of("SASL_MECHANISM"),
            sasl_username=of("SASL_USERNAME"),
            sasl_password=of("SASL_PASSWORD"),
            tls_ca=of("CA"),
            tls_certificate=of("CERTIFICATE"),
            tls_key=of("KEY"),
            topic_prefix=self.prefix,
        )


def parse_cluster(source: str) -> Cluster:
    """Parses `HOST:PORT[/CLUSTER]`; the default cluster is `sirocco`.

    Raises:
        InvalidArgument: It is not of this form.
    """
    bootstrap, has_name, name = source.partition("/")
    if not all(":" in one for one in bootstrap.split(",")) or "/" in name:
        raise InvalidArgument(f"{source!r} is not HOST:PORT[/CLUSTER]", field="kafka")
    return Cluster(bootstrap, name if has_name else "sirocco")


def connector_options(settings: KafkaSettings) -> dict[str, str]:
    """Returns the connector's settings, under the names of its Java client."""
    options = {
        "kafka.bootstrap.servers": settings.bootstrap,
        "kafka.security.protocol": settings.security_protocol,
    }
    if settings.sasl_mechanism:
        module = "scram.Scram" if settings.sasl_mechanism.startswith("SCRAM") else "plain.Plain"
        escaped = [
            one.replace("\\", "\\\\").replace('"', '\\"')
            for one in (settings.sasl_username, settings.sasl_password)
        ]
        options["kafka.sasl.mechanism"] = settings.sasl_mechanism
        options["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{escaped[0]}" password="{escaped[1]}";'
        )
    if settings.tls_ca:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = settings.tls_ca
    return options


def suits_connector(settings: KafkaSettings) -> bool:
    """Returns whether the connector supports all of these settings.

    Java needs a certificate and its key in one file, or the key itself among the options. Services
    have two files, and keys do not belong in options.
    """
    return not settings.tls_certificate


def has_connector(session: SparkSession) -> bool:
    """Returns whether the Kafka connector is on the class path."""
    jvm = java_of(session)
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(_PROVIDER, False, loader)
    except Exception:  # py4j has one class for all Java exceptions
        return False
    return True


def read_topic(
    session: SparkSession, cluster: Cluster, topic: str, task_offsets: int = TASK_OFFSETS
) -> DataFrame:
    """Returns all records of a topic: partition, offset, value, method.

    Raises:
        InvalidArgument: There is no such topic.
    """
    bounds = _bounds(cluster, topic)
    settings = cluster.settings()
    if suits_connector(settings) and has_connector(session):
        records = (
            session.read.format("kafka")
            .options(**connector_options(settings))
            .option("subscribe", cluster.prefix + topic)
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .load()
        )
        return with_method(records)
    stretches = [
        (partition, begin, min(begin + task_offsets, high))
        for partition, (low, high) in enumerate(bounds)
        for begin in range(low, high, task_offsets)
    ]
    items = [orjson.dumps(stretch).decode() for stretch in stretches]
    return in_tasks(session, items, _fetching(cluster, topic), RECORD_DDL)


def with_method(records: DataFrame) -> DataFrame:
    """Returns the connector's rows with the method that their headers name."""
    named = F.filter("headers", lambda header: header["key"] == METHOD_HEADER)
    method = named[0]["value"].cast("string")
    return records.select("partition", "offset", "value", method.alias("method"))


def _bounds(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    """Returns for each Kafka partition the first offset and the one after the last."""
    log = KafkaLog(cluster.settings())
    try:
        return [log.bounds(topic, partition) for partition in range(log.partitions(topic))]
    except UnknownTopic:
        raise InvalidArgument(f"there is no topic {cluster.prefix}{topic}", field="kafka") from None
    finally:
        log.close()


def _fetching(cluster: Cluster, topic: str) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    def fetch(items: Iterator[str]) -> Iterator[pa.RecordBatch]:
        for item in items:
            yield from _fetch(cluster, topic, *orjson.loads(item))

    return fetch


def _fetch(
    cluster: Cluster, topic: str, partition: int, low: int, high: int
) -> Iterator[pa.RecordBatch]:
    """Yields the records of a Kafka partition from `low` up to, without, `high`."""
    log = KafkaLog(cluster.settings())
    try:
        consumer = log.consumer("spark")
        consumer.assign({(topic, partition): low})
        empty = 0
        while consumer.positions()[topic, partition] < high:
            records = [r for r in consumer.poll(500, POLL_S) if r.offset < high]
            # Compaction and ends of transactions leave offsets without a record.
            empty = 0 if records else empty + 1
            if empty > POLLS_EMPTY_MAX:
                raise TimeoutError(f"{topic}/{partition} does not answer below {high}")
            if records:
                yield pa.RecordBatch.from_pylist(
                    [
                        {
                            "partition": partition,
                            "offset": record.offset,
                            "value": record.value,
                            "method": dict(record.headers).get(METHOD_HEADER, b"").decode(),
                        }
                        for record in records
                    ],
                    schema=_RECORD_SCHEMA,
                )
    finally:
        log.close()


def decode_objects(records: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Returns the objects of records of `intake`, each once.

    Publishers repeat objects without an acknowledgement, so a number of a session may occur twice,
    with the same content. Arrival is the time at the front.
    """
    wide = tuple(dict.fromkeys([*columns, "session", "number"]))
    decoded = records.mapInArrow(_decoding(wide), ddl_of(wide))
    refused = decoded.where(F.col("refusal").isNotNull())
    objects = decoded.where(F.col("refusal").isNull()).dropDuplicates(["session", "number"])
    return objects.unionByName(refused).select(*columns, "refusal")


def _decoding(
    columns: tuple[str, ...],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reasons = []
            for record in batch.to_pylist():
                try:
                    message = read_record(record["method"] or "", record["value"])
                except InvalidArgument as error:
                    place = f"{record['partition']}/{record['offset']}"
                    reasons.append(f"{INTAKE} {place}: {error}")
                    continue
                if isinstance(message, IntakeObjects) and len(message.objects):
                    yield _taken_batch(message, columns)
            if reasons:
                yield refusal_batch(reasons, columns)

    return decode


def _taken_batch(message: IntakeObjects, columns: tuple[str, ...]) -> pa.RecordBatch:
    count = len(message.objects)
    deltas = message.number_deltas
    numbers = np.arange(count, dtype=np.uint64) if deltas is None else deltas.astype(np.uint64)
    return object_batch(
        message.objects,
        columns,
        arrivals_ms=np.full(count, message.received_ms, np.int64),
        session=message.session,
        numbers=numbers + np.uint64(message.first_number),
    )


def decode_queries(records: DataFrame) -> DataFrame:
    """Returns the live queries of records of `registry` as canonical JSON (see `lines`)."""
    return records.groupBy("partition").applyInArrow(_folded, QUERY_DDL)


def _folded(records: pa.Table) -> pa.Table:
    """Returns the queries in force of one Kafka partition, by the rule of docs/adr/0005."""
    specs: dict[int, tuple[int, str | None]] = {}
    reasons: list[str] = []
    epoch = 0
    for record in records.sort_by("offset").to_pylist():
        try:
            change = read_record(record["method"] or "", record["value"])
        except InvalidArgument as error:
            place = f"{record['partition']}/{record['offset']}"
            reasons.append(f"{REGISTRY} {place}: {error}")
            continue
        if not isinstance(change, Change) or change.is_probe:
            epoch = max(epoch, change.epoch) if isinstance(change, Change) else epoch
            continue
        is_late, epoch = change.epoch < epoch, max(epoch, change.epoch)
        known = specs.get(change.handle)
        if known is not None and (is_late or not _fits(change, known[0])):
            continue
        revision = change.expected_revision if change.is_republished else record["offset"]
        query = change.query
        spec = None if query is None else orjson.dumps(canonical(query)).decode()
        specs[change.handle] = (NO_REVISION if spec is None else revision, spec)
    live = [spec for _, spec in specs.values() if spec is not None]
    rows = [{"spec": spec, "refusal": None} for spec in live]
    rows += [{"spec": None, "refusal": reason} for reason in reasons]
    return pa.Table.from_pylist(rows, schema=QUERY_SCHEMA)


def _fits(change: Change, revision: int) -> bool:
    """Returns whether a change replaces a revision; compaction may have removed some between."""
    return change.expected_revision >= revision
