#!/bin/sh
# Kafka's storage tool.
exec java -cp '/opt/kafka/jars/*' -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
  -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties kafka.tools.StorageTool "$@"
