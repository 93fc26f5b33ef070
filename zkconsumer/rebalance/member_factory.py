"""Creates a group member and its components."""

from __future__ import annotations

from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig
from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.factory import create_cluster
from zkconsumer.metrics import Kind, Metrics, declare
from zkconsumer.offsets.base import Offsets
from zkconsumer.offsets.factory import create_offsets
from zkconsumer.rebalance.attempts import RebalanceAttempts
from zkconsumer.rebalance.broker_requests import BrokerRequestThread, ClusterProxy
from zkconsumer.rebalance.callbacks import CallbackRunner, ConsumerRebalanceListener
from zkconsumer.rebalance.claim_history import ClaimHistory
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.context import AssignmentContext
from zkconsumer.rebalance.first_rebalance import FirstRebalance
from zkconsumer.rebalance.handler import PartitionHandler
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.rebalance.member_thread import MemberThread
from zkconsumer.rebalance.membership import Membership
from zkconsumer.rebalance.owned_partitions import OwnedPartitions
from zkconsumer.rebalance.ownership import Ownership
from zkconsumer.rebalance.rebalancer import ZKRebalancerListener
from zkconsumer.rebalance.session_watch import SessionWatch
from zkconsumer.zookeeper.registry import GroupPaths, Registration, new_consumer_id
from zkconsumer.zookeeper.session import ZooKeeperSession

_CONNECTOR = "kafka.consumer", "ZookeeperConsumerConnector"
_REBALANCES = declare(*_CONNECTOR, "RebalanceRateAndTime", Kind.TIMER, "clientId", "Rebalance attempts.")

#: Commit meters, by offset storage.
_COMMITS = {
    storage: declare(
        *_CONNECTOR, f"{storage}CommitsPerSec", Kind.METER, "clientId", f"Number of offsets committed to {storage}."
    )
    for storage in ("ZooKeeper", "Kafka")
}


def create_member(
    config: ConsumerConfig,
    registration: Registration,
    handler: PartitionHandler,
    *,
    auto_commit: bool,
    user_listener: ConsumerRebalanceListener | None = None,
    metrics: Metrics | None = None,
    first_rebalance_timeout_s: float = 0.0,
) -> GroupMember:
    """Create a group member without starting it.

    Args:
        config: consumer configuration.
        registration: topics or topic filter that the member registers, with the number of streams.
        handler: handler that delivers the records of the member's partitions.
        auto_commit: whether to commit ``handler.consumed_offsets()`` every ``auto.commit.interval.ms``.
        user_listener: the application's rebalance listener.
        metrics: registry for the rebalance and commit metrics.
        first_rebalance_timeout_s: maximum seconds to wait for the first rebalance; the time limit of JVM members
            applies if it is longer.
    """
    metrics = metrics or Metrics()
    watch = _create_watch(config, handler)
    cluster = _create_cluster(config, watch)
    committer = _create_committer(config, watch, cluster.cluster, handler, metrics, auto_commit=auto_commit)
    callbacks = CallbackRunner(
        user_listener, watch, timeout_s=config.rebalance_max_retries * config.rebalance_backoff_s
    )
    listener = _create_listener(config, registration, watch, cluster, committer, handler, callbacks)
    first_rebalance = FirstRebalance(config, watch.membership.consumer_id, first_rebalance_timeout_s)
    timer = metrics.timer(_REBALANCES, clientId=config.client_id)
    attempts = RebalanceAttempts(config, watch, listener, cluster, first_rebalance, timer.update)
    thread = MemberThread(watch, listener, attempts, first_rebalance, committer, handler)
    return GroupMember(config, watch, cluster, committer, thread, handler)


def _create_watch(config: ConsumerConfig, handler: PartitionHandler) -> SessionWatch:
    mailbox = Mailbox("the consumer was shut down; offsets can no longer be committed")
    session = ZooKeeperSession.from_config(config, mailbox.queue, handler.on_lease_expired)
    membership = Membership(config.group_id, new_consumer_id(config.group_id, config.consumer_id), session)
    return SessionWatch(session, membership, mailbox)


def _create_cluster(config: ConsumerConfig, watch: SessionWatch) -> ClusterProxy:
    """Create the cluster proxy with its own thread, so that lookups do not block the commits of released partitions."""
    session, consumer_id = watch.session, watch.membership.consumer_id
    path = GroupPaths(config.group_id).registration(f"{consumer_id}-change")

    def announce_change() -> None:
        """Make all members rebalance, because brokers do not notify them of new topics and partitions.

        Without this rebalance, a new partition could have no owner until its assigned member polls the metadata.
        """
        session.znodes.touch_parent(path, Registration({}).to_json())

    lookups = BrokerRequestThread(f"zkconsumer-{config.group_id}-lookups-{consumer_id}", watch)
    cluster = create_cluster(config, session, Connecting.from_config(config))
    return ClusterProxy(cluster, lookups, announce_change)


def _create_committer(
    config: ConsumerConfig,
    watch: SessionWatch,
    cluster: Cluster,
    handler: PartitionHandler,
    metrics: Metrics,
    *,
    auto_commit: bool,
) -> OffsetCommitter:
    connecting = Connecting.from_config(config).with_timeout(config.offsets_channel_socket_timeout_s)

    def open_offsets(storage: str, dual_commit: bool) -> Offsets:
        return create_offsets(
            config,
            watch.session,
            cluster.brokers,
            connecting,
            storage=storage,
            dual_commit=dual_commit,
            counter=lambda name: metrics.meter(_COMMITS[name], clientId=config.client_id).mark,
            topic_ids=lambda: cluster.topic_ids,
        )

    interval_s = config.auto_commit_interval_s if auto_commit else None
    requests = BrokerRequestThread(f"zkconsumer-{config.group_id}-broker-calls-{watch.membership.consumer_id}", watch)
    return OffsetCommitter(config, watch.membership, open_offsets, handler, requests, interval_s=interval_s)


def _create_listener(
    config: ConsumerConfig,
    registration: Registration,
    watch: SessionWatch,
    cluster: ClusterProxy,
    committer: OffsetCommitter,
    handler: PartitionHandler,
    callbacks: CallbackRunner,
) -> ZKRebalancerListener:
    consumer_id = watch.membership.consumer_id
    context = AssignmentContext(config, consumer_id, registration, watch.session, cluster)
    ownership = Ownership(config, watch.session, consumer_id, registration)
    history = ClaimHistory(config, cluster, watch.membership, committer)
    partitions = OwnedPartitions(watch, ownership, history, committer, handler, callbacks)
    return ZKRebalancerListener(config, watch, context, ownership, history, partitions)
