"""The tool ``cluster``: runs a development cluster in the foreground, or detached under a supervisor process."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.cluster import DEFAULT_KAFKA, DevCluster
from zkconsumer.devcluster.data_directory import delete_abandoned
from zkconsumer.devcluster.java import java_home, make_directory
from zkconsumer.devcluster.servers import is_kraft, pinned_versions
from zkconsumer.errors import ZkConsumerError
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.tools import cluster_produce, cluster_state, common, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.zookeeper.registry import check_topic_name


def add_options(parser: ToolParser) -> None:
    """Add the actions, their options and the functions that run them."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    up = actions.add_parser("up", help="start a cluster that runs until Ctrl-C or, with --detach, until `down`")
    up.add_argument("--brokers", type=common.positive, default=2, metavar="N", help="number of brokers (default: 2)")
    up.add_argument(
        "--kafka",
        type=_version,
        default=DEFAULT_KAFKA,
        metavar="VERSION",
        help="Kafka version (default: %(default)s); 4.0 and later run in KRaft mode. Versions with pinned checksums: "
        f"{', '.join(pinned_versions())}; other versions since 0.8.2.2 can also be downloaded",
    )
    up.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        dest="topics",
        metavar="NAME[:PARTITIONS]",
        help="topic to create, with 1 partition by default; can be repeated",
    )
    up.add_argument("--zookeeper-port", type=_port, metavar="PORT", help="ZooKeeper port (default: any free port)")
    up.add_argument(
        "--broker-port",
        type=_port,
        metavar="PORT",
        help="port of the first broker; further brokers use consecutive ports (default: any free ports)",
    )
    up.add_argument(
        "--chroot",
        type=_chroot,
        default="",
        metavar="/PATH",
        help="ZooKeeper chroot of the brokers and consumer groups",
    )
    up.add_argument("--detach", action="store_true", help="run the cluster in the background")
    common.add_json(up)
    up.set_defaults(run=run_up)
    down = actions.add_parser("down", help="stop the detached cluster")
    common.add_json(down)
    down.set_defaults(run=run_down)
    status = actions.add_parser("status", help="print the addresses of the detached cluster")
    form = status.add_mutually_exclusive_group()
    common.add_json(form)
    form.add_argument(
        "--properties", action="store_true", help="print a consumer properties file; change its group.id as needed"
    )
    status.set_defaults(run=run_status)
    topic = actions.add_parser("topic", help="create a topic in the detached cluster")
    topic.add_argument(
        "topic", type=_topic, metavar="NAME[:PARTITIONS]", help="topic name and number of partitions (default: 1)"
    )
    topic.set_defaults(run=run_topic)
    java = actions.add_parser("java-home", help="print the JAVA_HOME that the development cluster uses")
    java.set_defaults(run=run_java_home)
    cluster_produce.add_to(actions)


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)+", text):
        raise argparse.ArgumentTypeError(f"must be a version such as 3.9.2, got {text!r}")
    return text


def _chroot(text: str) -> str:
    if text and not re.fullmatch(r"(/[^/]+)+", text):
        raise argparse.ArgumentTypeError(f"must be a path such as /kafka, got {text!r}")
    return text


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    try:
        check_topic_name(name)
    except ZkConsumerError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name, common.positive(partitions) if colon else 1


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"must be a port between 1 and 65535, got {text!r}")
    return int(text)


def run_up(options: argparse.Namespace) -> int:
    """Start a cluster; return the exit code once it has stopped or, with ``--detach``, once it is running."""
    if options.detach:
        return _detach(options)
    state_file = os.environ.get("ZKCONSUMER_CLUSTER_STATE")  # set by _detach for the supervisor
    with contextlib.ExitStack() as stack:
        if state_file:
            stack.enter_context(cluster_state.supervising(Path(state_file)))
        cluster = stack.enter_context(
            DevCluster(
                options.brokers,
                kafka=options.kafka,
                chroot=options.chroot,
                zookeeper_port=options.zookeeper_port,
                broker_port=options.broker_port,
            )
        )
        for name, partitions in options.topics:
            cluster.create_topic(name, partitions)
        state = _describe(cluster, options.kafka)
        (cluster.folder / cluster_state.MARKER).write_text(str(os.getpid()))
        _print(options, state)
        if state_file:
            os.dup2(1, 2)  # a caller that reads stderr from a pipe must not wait for this process
            cluster_state.publish(Path(state_file), state)
            _watch(cluster)
        else:
            _watch_in_foreground(cluster, output.note if options.json else output.echo)
    return 0


def _describe(cluster: DevCluster, kafka: str) -> dict[str, Any]:
    """Return the content of the state file for a running cluster."""
    return {
        "supervisor": os.getpid(),
        "kafka": kafka,
        "zookeeper.connect": cluster.zookeeper_connect,
        "bootstrap.servers": cluster.bootstrap_servers,
        "logs": str(cluster.folder),
        "servers": {server.name: server.pid for server in (cluster.zookeeper, *cluster.brokers)},
    }


def _watch_in_foreground(cluster: DevCluster, say: Callable[[str], None]) -> None:
    say("press Ctrl-C to stop the cluster")
    output.flush()
    try:
        _watch(cluster)
    except KeyboardInterrupt:
        say("stopping the development cluster")
        raise


def _watch(cluster: DevCluster) -> None:
    """Block until a signal arrives.

    Raises:
        ZkConsumerError: a server terminated.
    """
    while True:
        time.sleep(1)
        for server in (cluster.zookeeper, *cluster.brokers):
            if not server.is_running:
                raise ZkConsumerError(f"{server.name} terminated; {server.log_end()}")


def run_down(options: argparse.Namespace) -> int:
    """Stop the detached cluster, delete the data of killed clusters, and return the exit code."""
    delete_abandoned()
    state = cluster_state.running()
    if state is None:
        _print(options, None)
        return 0
    os.kill(state["supervisor"], signal.SIGTERM)
    deadline = time.monotonic() + 60
    while cluster_state.running() is not None:
        if time.monotonic() > deadline:
            raise ZkConsumerError(f"the supervisor (pid {state['supervisor']}) did not terminate within 60 s; kill it")
        time.sleep(0.1)
    if options.json:
        output.print_json({"running": False, "stopped": state})
    else:
        output.echo(f"development cluster stopped (pid {state['supervisor']}), data deleted")
    return 0


def run_topic(options: argparse.Namespace) -> int:
    """Create a topic in the detached cluster, and return the exit code."""
    state = cluster_state.require()
    name, partitions = options.topic
    with Admin(parse_bootstrap(state["bootstrap.servers"]), state["zookeeper.connect"]) as admin:
        admin.create_topic(name, partitions)
    output.echo(f"created topic {name!r} with {output.count(partitions, 'partition')}")
    return 0


def run_java_home(_options: argparse.Namespace) -> int:
    """Print the value of JAVA_HOME for Spark, and return the exit code."""
    output.echo(java_home())
    return 0


def run_status(options: argparse.Namespace) -> int:
    """Print the detached cluster's addresses or consumer properties; return exit code 1 if it is not running."""
    if options.properties:
        _print_properties(cluster_state.require())  # the output is usually redirected to a file, so print no messages
        return 0
    state = cluster_state.running()
    _print(options, state)
    return 1 if state is None else 0


def _detach(options: argparse.Namespace) -> int:
    if state := cluster_state.running():
        raise ZkConsumerError(
            f"a development cluster is already running (pid {state['supervisor']}); "
            "stop it with `zkconsumer cluster down`"
        )
    path = cluster_state.state_file()
    make_directory(path.parent, "XDG_STATE_HOME")
    log = path.with_suffix(".log")
    command = [sys.executable, "-P", "-m", "zkconsumer", "cluster", "up", f"--brokers={options.brokers}"]
    command += [f"--kafka={options.kafka}", f"--chroot={options.chroot}"]
    command += [f"--topic={name}:{partitions}" for name, partitions in options.topics]
    ports = {"--zookeeper-port": options.zookeeper_port, "--broker-port": options.broker_port}
    command += [f"{option}={port}" for option, port in ports.items() if port]
    with log.open("wb") as out:
        supervisor = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=None,  # inherited, to show the download progress
            start_new_session=True,
            env={**os.environ, "ZKCONSUMER_CLUSTER_STATE": str(path), "PYTHONPATH": _module_path()},
        )
    try:
        while cluster_state.running() is None:
            if supervisor.poll() is not None:
                raise ZkConsumerError(f"the cluster did not start; see the messages above and {log}")
            time.sleep(0.1)
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise
    _print(options, cluster_state.running())
    return 0


def _module_path() -> str:
    """Return the value of ``PYTHONPATH`` with which a child process imports the same modules as this process.

    Without it and ``-P``, ``python -m`` imports zkconsumer from the working directory, which may be a checkout without
    compiled modules.
    """
    return os.pathsep.join(os.path.abspath(directory) for directory in sys.path)


def _print_properties(state: dict[str, Any]) -> None:
    """Print consumer properties for the cluster; a group without committed offsets starts at the earliest record."""
    names = ("zookeeper.connect", "bootstrap.servers") if is_kraft(state["kafka"]) else ("zookeeper.connect",)
    output.echo(f"# Consumer properties for the development cluster (Kafka {state['kafka']})")
    for name in names:
        output.echo(f"{name}={state[name]}")
    output.echo("group.id=example")
    output.echo("# Start at the earliest record if the group has no committed offset.")
    output.echo("auto.offset.reset=smallest")


def _print(options: argparse.Namespace, state: dict[str, Any] | None) -> None:
    if options.json:
        output.print_json({"running": False} if state is None else {"running": True, **state})
        return
    if state is None:
        output.echo("no development cluster is running")
        return
    output.echo(f"Kafka {state['kafka']}, supervisor pid {state['supervisor']}")
    for name in cluster_state.ADDRESSES:
        output.echo(f"{name}={state[name]}")
    output.flush()
