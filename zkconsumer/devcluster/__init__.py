"""Development clusters: ZooKeeper and Kafka brokers as child processes, without Docker or a Kafka installation.

::

    from zkconsumer.devcluster import DevCluster

    with DevCluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=8)
        print(cluster.zookeeper_connect, cluster.bootstrap_servers)

In pytest, the fixture ``zkconsumer_cluster`` is available without an import.
"""

import zkconsumer.broker  # noqa: F401  # import first: suppresses a warning from kafka-python
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.cluster import DEFAULT_KAFKA, DevCluster, ExistingCluster
from zkconsumer.devcluster.jars import JarsUnavailableError
from zkconsumer.devcluster.process import ServerFailedError

__all__ = ["DEFAULT_KAFKA", "Admin", "DevCluster", "ExistingCluster", "JarsUnavailableError", "ServerFailedError"]
