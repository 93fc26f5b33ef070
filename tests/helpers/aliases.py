"""Types of fixtures that several test modules use."""

from __future__ import annotations

from collections.abc import Callable

from helpers.producing import Load
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.devcluster import DevCluster, ExistingCluster

Cluster = DevCluster | ExistingCluster

#: Creates a topic and returns its name.
Topics = Callable[..., str]

#: Returns the configuration of a consumer of the cluster.
Configs = Callable[..., ConsumerConfig]

#: Creates a consumer that is closed after the test.
Consumers = Callable[..., ZookeeperConsumerConnector]

#: Starts a producer of records.
Loads = Callable[..., Load]

#: Runs a command line tool, and returns its exit code, output and errors.
Run = Callable[..., tuple[int, str, str]]
