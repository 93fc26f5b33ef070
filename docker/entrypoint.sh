#!/usr/bin/env bash
# Entry point of the server image: run ZooKeeper or a Kafka broker in this process.
#   entrypoint.sh zookeeper | kafka
#
# Environment of a broker:
#   BROKER_ID          0 by default
#   ADVERTISED_HOST    host name for clients outside of the containers; localhost by default
#   KAFKA_PORT         port of the listener for these clients; 9092 by default
#   ZOOKEEPER_CONNECT  zookeeper:2181 by default; not used by Kafka 4 and later, which run in KRaft mode
set -euo pipefail

data=/var/lib/kafka/data
home=/opt/kafka
java=(java -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true "-Dlog4j2.configurationFile=$home/config/log4j2.properties"
    -Dzkconsumer.log=/dev/stdout)

zookeeper() {
    { cat "$home/config/zookeeper.properties"; echo "dataDir=$data"; echo clientPort=2181; } >zookeeper.properties
    exec "${java[@]}" -Xmx128m -cp "$home/logging/*:$home/zookeeper/*" org.apache.zookeeper.server.quorum.QuorumPeerMain \
        "$PWD/zookeeper.properties"
}

kafka() {
    local id=${BROKER_ID:-0} port=${KAFKA_PORT:-9092}
    if [[ $port == 29092 || $port == 29093 ]]; then
        echo "KAFKA_PORT=$port is a port that the broker uses inside of the container; choose another one" >&2
        exit 2
    fi
    # The listener for clients outside comes first: the old consumer uses the first endpoint with protocol PLAINTEXT.
    local listeners="PLAINTEXT://0.0.0.0:$port,INTERNAL://0.0.0.0:29092"
    local protocols=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT
    {
        cat "$home/config/kafka.properties"
        echo "log.dirs=$data"
        echo "advertised.listeners=PLAINTEXT://${ADVERTISED_HOST:-localhost}:$port,INTERNAL://$(hostname):29092"
        echo inter.broker.listener.name=INTERNAL
        if is_kraft; then
            echo "node.id=$id"
            echo process.roles=broker,controller
            echo "listeners=$listeners,CONTROLLER://127.0.0.1:29093"
            echo controller.listener.names=CONTROLLER
            echo "controller.quorum.voters=$id@127.0.0.1:29093"
            echo "listener.security.protocol.map=$protocols,CONTROLLER:PLAINTEXT"
        else
            echo "broker.id=$id"
            echo "listeners=$listeners"
            echo "listener.security.protocol.map=$protocols"
            echo "zookeeper.connect=${ZOOKEEPER_CONNECT:-zookeeper:2181}"
            echo zookeeper.session.timeout.ms=6000
        fi
    } >kafka.properties
    java+=(-cp "$home/logging/*:$home/kafka/*") # another version of slf4j is among the jars of Kafka
    if is_kraft; then
        run "${java[@]}" -Xmx128m kafka.tools.StorageTool format --ignore-formatted \
            --cluster-id=emtjb25zdW1lci1kZXY0MA -c "$PWD/kafka.properties"
    fi
    exec "${java[@]}" -Xmx512m kafka.Kafka "$PWD/kafka.properties"
}

# Run a command, and terminate it if this script receives a signal. The first process of a container ignores SIGTERM
# unless it handles the signal, and bash runs a trap only after a command in the foreground has ended.
run() {
    "$@" &
    trap 'kill $!; wait $! || true; exit 143' TERM INT HUP
    wait $!
    trap - TERM INT HUP
}

is_kraft() {
    local version
    version=$(cat "$home/config/version")
    ((${version%%.*} >= 4))
}

case ${1:-} in
    zookeeper | kafka) "$1" ;;
    *)
        echo "usage: entrypoint.sh zookeeper | kafka" >&2
        exit 2
        ;;
esac
