"""A real Kafka broker on this machine: one KRaft node, broker and controller in one process.

Its jars are those of `kafka-pom.xml`, fetched once by Maven and kept in the cache directory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from sirocco.local.process import LocalError, LocalProcess, free_port
from sirocco.transport.kafka_log import reachable
from sirocco.transport.kafka_settings import KafkaSettings
from sirocco.transport.log import RECORD_BYTES_MAX

CACHE = Path(__file__).resolve().parents[2] / ".cache"
_POM = Path(__file__).with_name("kafka-pom.xml")
# As `sha256sum *.jar` prints them; renewed with the version in the pom.
_CHECKSUMS = Path(__file__).with_name("kafka-jars.sha256")
_JAVA_VERSION_MIN = 17
_CLUSTER_ID = "c2lyb2Njby1sb2NhbC0wMQ"  # 16 bytes in base64, as the format tool wants it

# For a broker that lives minutes and shares few cores. The optimising compiler takes a core for
# the first minutes and gains nothing within them: on two cores, acknowledgements took 195 ms at
# p95 with it and 5 ms without, at the same CPU per record.
_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

# One node, few threads, little memory, quick to start and to stop. What is not obvious:
# - the log cleaner's default buffer alone is 128 MiB, a quarter of the heap;
# - 50 Kafka partitions for offsets and for transactions would be made at the first use, seconds
#   on two cores;
# - after a crash the controller waits for the dead broker's session: 9 s by default; a start after
#   a kill takes 5 s with 3 s (a longer pause of the process means a moment without leaders);
# - the data are named from the broker's own directory, where it runs: what the path to that holds,
#   blanks, accents or commas, would mean something else in this file;
# - topics come from `create_topics` alone, otherwise a misspelt name gets one Kafka partition.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes={message_bytes_max}
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
background.threads=2
num.recovery.threads.per.data.dir=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.segment.bytes=16777216
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""

# A second listener for those who come with a name and a password: one user, by every mechanism.
_SASL_PROPERTIES = """\
listeners=PLAINTEXT://{host}:{port},SASL://{host}:{sasl_port},\\
  CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port},SASL://{host}:{sasl_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:{protocol}
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_{username}="{password}";
listener.name.sasl.scram-sha-256.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
"""

# That listener behind TLS. The file is in the broker's own directory.
_TLS_NAME = "kafka-server.pem"
_TLS_PROPERTIES = f"""\
listener.name.sasl.ssl.keystore.type=PEM
listener.name.sasl.ssl.keystore.location={_TLS_NAME}
"""

_LOGGING_NAME = "kafka-log4j2.properties"

# Java decodes its arguments by the locale; without one, an accent in a path is lost.
_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}

_LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c: %m%n
"""


def kafka_version() -> str:
    """The pinned version of the broker."""
    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ElementTree.parse(_POM).findtext(
        "m:dependencies/m:dependency[m:artifactId='kafka_2.13']/m:version", namespaces=names
    )
    if found is None:
        raise LocalError(f"{_POM} names no kafka_2.13")
    return found


def fetch_kafka(cache: Path = CACHE) -> Path:
    """The directory of the broker's jars; fetched at the first call, about 44 MB.

    Raises:
        LocalError: no Maven, or it failed, or brought other bytes than those that were released.
    """
    return fetch_jars(_POM, cache / f"kafka-{kafka_version()}", "kafka_2.13-*.jar", _CHECKSUMS)


def check_jars(jars: Path, checksums: Path) -> None:
    """Compares jars with a list of their SHA-256, as `sha256sum` prints it.

    Raises:
        LocalError: one is missing, is not in the list, or holds other bytes.
    """
    wanted = {}
    for line in checksums.read_text().splitlines():
        digest, name = line.split()
        wanted[name] = digest
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars.glob("*.jar")
    }
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            what = "is missing" if name not in found else "is not the file that was released"
            raise LocalError(f"{name} {what}: {checksums.name} says {wanted.get(name)}")


def fetch_jars(pom: Path, target: Path, proof: str, checksums: Path | None = None) -> Path:
    """The directory of the jars that a pom names; fetched at the first call.

    Args:
        pom: What Maven is to resolve.
        target: Where the jars are kept.
        proof: Pattern of a jar that must be among them.
        checksums: What they must hold (`check_jars`); None: whatever Maven brings.

    Raises:
        LocalError: no Maven, or it failed, or brought other bytes.
    """
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalError("Maven is missing: install it (Debian, Ubuntu: apt-get install maven)")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Fetched aside and renamed, so that an interrupted fetch is never taken for a whole one.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".jars-") as aside:
        jars = Path(aside) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not any(jars.glob(proof)):
            raise LocalError(f"Maven could not fetch what {pom} names:\n{done.stdout}{done.stderr}")
        if checksums is not None:
            check_jars(jars, checksums)
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    return target


def java() -> str:
    """The path of a Java that the broker runs on.

    Raises:
        LocalError: there is none, or it is too old.
    """
    found = shutil.which("java")
    hint = f"Java {_JAVA_VERSION_MIN} is needed (Debian: apt-get install openjdk-17-jre-headless)"
    if found is None:
        raise LocalError(f"java is missing: {hint}")
    output = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = output.partition('"')[2].partition(".")[0].partition('"')[0]
    if not version.isdigit() or int(version) < _JAVA_VERSION_MIN:
        raise LocalError(f"{found} is of version {version}: {hint}")
    return found


class KafkaServer:
    """A broker with its data, log (`kafka.log`) and process file (`kafka.pid`) in a directory.

    Args:
        directory: made if missing; data in it from before is used again.
        heap_mib: of the Java process.
        cache: where the jars are kept.
        outlive: see `LocalProcess`.
        sasl: name and password of a user for whom there is a listener of its own.
        certificate: of that listener, which then speaks TLS: key and certificate in PEM.
        host: address of this machine that it listens on, from its first start on.
    """

    def __init__(
        self,
        directory: Path,
        *,
        heap_mib: int = 512,
        cache: Path = CACHE,
        outlive: bool = False,
        sasl: tuple[str, str] | None = None,
        certificate: bytes = b"",
        host: str = "127.0.0.1",
    ) -> None:
        self._directory = directory.resolve()
        self._cache = cache
        self._heap_mib = heap_mib
        self._sasl = sasl
        self._certificate = certificate
        self._host = host
        self._config = self._directory / "kafka.properties"
        self.process = LocalProcess("kafka", self._directory, str(self._config), outlive=outlive)

    @property
    def address(self) -> str:
        """HOST:PORT for clients; fixed from the first start on, also over restarts."""
        return self._listener("PLAINTEXT")

    @property
    def sasl_address(self) -> str:
        """The same for those who come with a password (SASL_PLAINTEXT, or SASL_SSL)."""
        return self._listener("SASL")

    @property
    def settings(self) -> KafkaSettings:
        """What `KafkaLog` wants."""
        return KafkaSettings(bootstrap=self.address)

    def start(self) -> None:
        """Formats the storage at the first start, starts the broker, waits until it answers.

        Raises:
            LocalError: Java or Maven is missing, or the broker does not come up.
        """
        jars = fetch_kafka(self._cache)
        # Nothing but the jars and the mark is named by a whole path.
        tool = [java(), "-cp", f"{jars}/*", f"-Dsirocco.configuration={self._config}"]
        (self._directory / _LOGGING_NAME).write_text(_LOGGING)
        if not self._config.exists():
            self._format(tool)
        heap = [f"-Xms{self._heap_mib // 2}m", f"-Xmx{self._heap_mib}m"]
        self.process.start(
            [
                *tool,
                *_JVM_OPTIONS,
                *heap,
                f"-Dlog4j2.configurationFile={_LOGGING_NAME}",
                "kafka.Kafka",
                self._config.name,
            ],
            ready=lambda: reachable(self.settings, timeout_s=2.0),
            environment=_ENVIRONMENT,
            directory=self._directory,
        )

    def stop(self) -> None:
        """Ends the broker in order."""
        self.process.stop()

    def kill(self) -> None:
        """Ends the broker as a crash would; what it acknowledged survives (page cache)."""
        self.process.kill()

    def restart(self) -> None:
        """Stops and starts it on the same port with the same data."""
        self.stop()
        self.start()

    def _listener(self, wanted: str) -> str:
        # The last of a name counts, as for the broker.
        for line in reversed(self._config.read_text().splitlines()):
            name, _, value = line.partition("=")
            if name == "advertised.listeners":
                for listener in value.split(","):
                    protocol, _, address = listener.partition("://")
                    if protocol == wanted:
                        return address
        raise LocalError(f"{self._config} is damaged, or has no listener {wanted}")

    def _properties(self) -> str:
        port, controller_port = free_port(), free_port()
        text = _PROPERTIES.format(
            host=self._host,
            port=port,
            controller_port=controller_port,
            data="kafka-data",
            message_bytes_max=RECORD_BYTES_MAX + 65536,
        )
        if self._sasl is not None:
            username, password = self._sasl
            text += _SASL_PROPERTIES.format(
                host=self._host,
                port=port,
                controller_port=controller_port,
                sasl_port=free_port(),
                protocol="SASL_SSL" if self._certificate else "SASL_PLAINTEXT",
                username=username,
                password=password,
            )
        return text + _TLS_PROPERTIES if self._certificate else text

    def _credentials(self) -> list[str]:
        """Returns the arguments of the storage tool that create the user for SCRAM."""
        if self._sasl is None:
            return []
        username, password = self._sasl
        arguments = []
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            arguments += ["--add-scram", f"{mechanism}=[name={username},password={password}]"]
        return arguments

    def _format(self, tool: list[str]) -> None:
        """Writes the configuration with free ports and an empty storage for it."""
        if self._certificate:
            tls = self._directory / _TLS_NAME
            tls.touch(0o600)
            tls.write_bytes(self._certificate)
        written = self._config.with_suffix(".new")
        written.write_text(self._properties())
        done = subprocess.run(
            [
                *tool,
                *_JVM_OPTIONS,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                _CLUSTER_ID,
                "-c",
                written.name,
                *self._credentials(),
            ],
            cwd=self._directory,
            env=os.environ | _ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LocalError(f"Kafka's storage tool failed:\n{done.stdout}{done.stderr}")
        written.rename(self._config)
