#!/bin/sh
# Formats the storage at the first start, then becomes the broker. See sirocco/local/kafka.py for
# what the settings are for.
set -eu
properties=/tmp/kafka.properties
cat >"$properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093
advertised.listeners=PLAINTEXT://$KAFKA_ADVERTISED
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=/data/kafka
auto.create.topics.enable=false
message.max.bytes=${KAFKA_MESSAGE_BYTES_MAX:-4259840}
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
background.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.segment.bytes=16777216
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
END
/opt/kafka/bin/kafka-storage.sh format --ignore-formatted \
  --cluster-id c2lyb2Njby1pbWFnZXMtMQ --config "$properties"
exec /opt/kafka/bin/kafka-server-start.sh "$properties"
