#!/usr/bin/env bash
# Build the images and test them: make docker-test. All containers, volumes and images are removed at the end.
#
# It runs the integration tests from the host (.venv) and in a container, produces and consumes in a container beside the
# broker, runs a query on a Spark cluster, re-creates ZooKeeper alone, and tries the other brokers.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! docker version >/dev/null 2>&1 || ! docker compose version >/dev/null 2>&1; then
    echo "docker-test: no container engine with Compose is running here, so nothing was tested" >&2
    exit 1
fi
export COMPOSE_PROJECT_NAME=zkconsumer-test
export ZOOKEEPER_PORT=${ZOOKEEPER_PORT:-12181} KAFKA_PORT=${KAFKA_PORT:-19092} KAFKA_2_PORT=${KAFKA_2_PORT:-19093}
export KRAFT_PORT=${KRAFT_PORT:-19094} SPARK_PORT=${SPARK_PORT:-17077}
compose=(docker compose -f docker/compose.yaml)
all=("${compose[@]}" --profile two-brokers --profile kraft --profile spark --profile tests)

step() { printf '\n==> %s\n' "$*"; }

# Run a command in its own process group, which "end" terminates when this script receives a signal. The command runs in
# the background, because bash runs a trap only after a command in the foreground has ended.
run() {
    set -m
    "$@" &
    set +m
    wait $!
}

end() { # SIGNAL_NUMBER
    trap '' INT TERM HUP
    local group
    for group in $(jobs -p); do
        kill -INT -- "-$group" 2>/dev/null || continue
        for _ in $(seq 300); do
            kill -0 -- "-$group" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$group" 2>/dev/null || true
    done
    exit $((128 + $1))
}
trap 'end 1' HUP
trap 'end 2' INT
trap 'end 15' TERM

finish() {
    local code=$?
    trap '' INT TERM HUP # a signal does not interrupt the cleanup
    if ((code)); then "${all[@]}" logs --tail 20 || true; fi
    step "remove containers, volumes and images"
    "${all[@]}" down --volumes --remove-orphans --timeout 10 --rmi all
    exit "$code"
}
trap finish EXIT

in_container() { run "${compose[@]}" run --rm -T --no-deps "$@"; }

step "build the images"
run "${all[@]}" build --quiet
docker images --format '{{.Repository}}:{{.Tag}}  {{.Size}}' | grep ^zkconsumer

step "start ZooKeeper and one broker"
run "${compose[@]}" up --detach --wait

step "integration tests from the host"
run env ZKCONSUMER_TEST_ZOOKEEPER="localhost:$ZOOKEEPER_PORT" ZKCONSUMER_TEST_BROKERS="localhost:$KAFKA_PORT" \
    .venv/bin/python -m pytest -q tests/integration

step "integration tests in a container"
in_container tests

step "produce and consume in a container beside the broker"
beside() { in_container application python docker/produce_and_consume.py zookeeper:2181 "$1"; }
beside kafka:29092

step "a query on the Spark cluster"
run "${compose[@]}" --profile spark up --detach --wait spark-master spark-worker
in_container application python docker/spark_query.py spark://spark-master:7077 zookeeper:2181 kafka:29092

step "re-create ZooKeeper alone"
run "${compose[@]}" up --detach --force-recreate --no-deps --wait zookeeper
run "${compose[@]}" up --detach --wait
beside kafka:29092

step "two brokers, and Kafka 4 in KRaft mode"
run "${compose[@]}" up --detach --wait kafka kafka-2 kraft
beside kafka:29092,kafka-2:29092
beside kraft:29092

step "the brokers are healthy only while they are registered in ZooKeeper"
run "${compose[@]}" stop zookeeper
for _ in $(seq 60); do
    [[ $(docker inspect --format '{{.State.Health.Status}}' "$("${compose[@]}" ps -q kafka)") == unhealthy ]] && break
    sleep 1
done
[[ $(docker inspect --format '{{.State.Health.Status}}' "$("${compose[@]}" ps -q kafka)") == unhealthy ]]

step "all tests have passed"
