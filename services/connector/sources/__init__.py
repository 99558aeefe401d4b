"""Sources: they read what other systems hold and publish it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sirocco.services.connector.runner import Parts, Runner, SourceConfig
from sirocco.services.connector.sections import Section
from sirocco.services.connector.sources.kafka_config import KafkaSourceSettings, read_kafka_source


@dataclass(frozen=True, slots=True)
class KafkaSourceConfig:
    """A source that reads Kafka topics."""

    settings: KafkaSourceSettings

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.settings.name

    def open(self, parts: Parts) -> Runner:
        """Returns the source; it connects to nothing before it runs."""
        from sirocco.services.connector.sources.kafka_source import KafkaSource  # noqa: PLC0415

        return KafkaSource(self.settings, parts)


def read_source(name: str, section: Mapping[str, Any]) -> SourceConfig:
    """Reads the section of a source.

    Raises:
        InvalidArgument: It cannot be used; `field` is the path of the member.
    """
    Section(section, f"sources.{name}").choice("kind", ("kafka",))
    return KafkaSourceConfig(read_kafka_source(name, section))
