#!/usr/bin/env bash
# Health check of the server image: exit code 0 if the server of this container responds. A broker in ZooKeeper mode must
# also be registered in ZooKeeper. It starts no JVM, because it runs every few seconds.
set -euo pipefail

ask_zookeeper() { # ENDPOINT COMMAND
    exec 3<>"/dev/tcp/${1%:*}/${1#*:}"
    printf '%s' "$2" >&3
    cat <&3
}

if grep -q QuorumPeerMain /proc/1/cmdline; then
    ask_zookeeper localhost:2181 srvr | grep Mode: >/dev/null # not -q, which may end before the sender
    exit
fi
# A request for the API versions: length, key 18, version 0, correlation id, no client id. The response has a length, too.
exec 4<>"/dev/tcp/localhost/${KAFKA_PORT:-9092}"
printf '\0\0\0\012\0\022\0\0\0\0\0\0\377\377' >&4
[[ $(head -c 8 <&4 | wc -c) == 8 ]]
if grep -q zookeeper.connect= kafka.properties; then
    hosts=${ZOOKEEPER_CONNECT:-zookeeper:2181}
    hosts=${hosts%%/*} # without chroot
    ask_zookeeper "${hosts%%,*}" dump | grep "/brokers/ids/${BROKER_ID:-0}$" >/dev/null
fi
