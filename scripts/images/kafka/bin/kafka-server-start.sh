#!/bin/sh
# The broker. The optimising compiler would take a core for the first minutes.
exec java -cp '/opt/kafka/jars/*' -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
  ${KAFKA_HEAP_OPTS:--Xms256m -Xmx512m} \
  -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties kafka.Kafka "$@"
