"""ZookeeperConsumerConnector: a consumer of Kafka topics in a ZooKeeper-coordinated group.

Source: Kafka 1.1 kafka.consumer.ZookeeperConsumerConnector.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
from collections.abc import Collection, Mapping
from functools import partial
from types import TracebackType

from zkconsumer.argument_checks import check_flag, check_function, check_methods, check_type
from zkconsumer.config import ConsumerConfig
from zkconsumer.consumer.commit_retries import create_retrying
from zkconsumer.consumer.runtime import ConsumerRuntime
from zkconsumer.consumer.stream import KafkaStream
from zkconsumer.errors import ClosedError, ConfigurationError, MessageStreamsExistError
from zkconsumer.health import Health, HealthListener
from zkconsumer.message import Decoder, K, TopicPartition, V
from zkconsumer.metrics import MetricName
from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
from zkconsumer.threads import run_protected
from zkconsumer.topic_filter import TopicFilter, Whitelist
from zkconsumer.zookeeper.registry import Registration, check_stream_count, check_topic_name


class ZookeeperConsumerConnector:
    """A member of a consumer group, with its streams.

    ::

        with create_consumer("consumer.properties") as consumer:
            signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
            for message in consumer.stream("orders"):
                print(message.partition, message.offset, message.value)

    At the end of the ``with`` block, the consumer leaves the group. If the block ends without an exception, the offsets
    of all delivered messages are committed first, unless ``auto.commit.enable`` is false. An exception that a signal
    handler raises in the meantime does not interrupt this; it is raised afterwards.

    All methods may be called from any thread. Only ``stop`` may be called in a signal handler.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        check_type("config", config, ConsumerConfig, "a ConsumerConfig, see from_dict and from_properties")
        self.config = config
        self._runtime: ConsumerRuntime | None = None
        self._is_closed = False
        self._is_stopping = False
        self._shutdown_event = threading.Event()  # interrupts the back-off between retries
        self._listener: ConsumerRebalanceListener | None = None
        self._health_listener: HealthListener | None = None
        self._process_id = os.getpid()
        self._closing_thread = f"zkconsumer-{config.group_id}-close"  # thread name

    def __enter__(self) -> ZookeeperConsumerConnector:
        # If a signal handler raises an exception immediately before ``__exit__``, Python does not call ``__exit__``.
        atexit.register(self._leave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_protected(partial(self._leave, commits_delivered=kind is None), self._closing_thread)

    def stream(
        self,
        topics: str | Collection[str],
        *,
        key_decoder: Decoder[K] | None = None,
        value_decoder: Decoder[V] | None = None,
    ) -> KafkaStream[K, V]:
        """Join the group, and return one stream of one or several topics; see ``create_message_streams``.

        With several topics, the consumer registers a whitelist of their names, as with
        ``create_message_streams_by_filter``.

        Args:
            topics: one or more topic names.
            key_decoder: see ``create_message_streams``.
            value_decoder: see ``create_message_streams``.

        Raises:
            ConfigurationError: no topic was given, or a topic name is not allowed by Kafka.
            ZkConsumerError: see ``create_message_streams``.
        """
        check_type("topics", topics, Collection, "a topic name or a list of topic names")
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names:
            raise ConfigurationError("topics must contain at least one topic name")
        for name in names:
            check_topic_name(name)
        if len(names) == 1:
            [stream] = self.create_message_streams({names[0]: 1}, key_decoder, value_decoder)[names[0]]
        else:
            whitelist = Whitelist("|".join(names).replace(".", r"\."))
            [stream] = self.create_message_streams_by_filter(whitelist, 1, key_decoder, value_decoder)
        return stream

    def create_message_streams(
        self,
        topic_count: Mapping[str, int],
        key_decoder: Decoder[K] | None = None,
        value_decoder: Decoder[V] | None = None,
    ) -> dict[str, list[KafkaStream[K, V]]]:
        """Join the group and return the streams of each topic.

        Blocks until the first rebalance completes. A topic that does not exist yet is consumed once it is created. If
        ``stop`` is called first, the consumer leaves the group, and the iteration over the returned streams ends at
        once.

        Args:
            topic_count: number of streams by topic. If it is empty, the consumer joins the group without partitions.
            key_decoder: function that decodes ``message.key`` when it is first read; None to return bytes.
            value_decoder: function that decodes ``message.value`` when it is first read; None to return bytes.

        Raises:
            MessageStreamsExistError: the streams of this consumer were already created.
            ZooKeeperUnavailableError, ConfigurationError, AuthenticationError, ConsumerRebalanceFailedError: joining
                the group failed, see ``GroupMember.start``; the consumer is no longer in the group.
            ClosedError: the consumer was shut down, or was created before a fork.
        """
        check_type("topic_count", topic_count, Mapping, "a dict such as {'orders': 1}")
        return self._create_streams(Registration.static(topic_count), key_decoder, value_decoder)

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        streams: int = 1,
        key_decoder: Decoder[K] | None = None,
        value_decoder: Decoder[V] | None = None,
    ) -> list[KafkaStream[K, V]]:
        """Join the group and return streams for all topics that match a filter, including topics created later.

        The partitions of each topic are divided among the streams.

        Args:
            topic_filter: a ``Whitelist`` or ``Blacklist``.
            streams: number of streams.
            key_decoder: see ``create_message_streams``.
            value_decoder: see ``create_message_streams``.

        Raises:
            ZkConsumerError: see ``create_message_streams``.
        """
        check_type("topic_filter", topic_filter, TopicFilter, "a Whitelist or Blacklist")
        streams = check_stream_count(f"filter {topic_filter!r}", streams)
        registration = Registration({topic_filter.regex: streams}, topic_filter.pattern)
        return self._create_streams(registration, key_decoder, value_decoder)[topic_filter.regex]

    def _create_streams(
        self, registration: Registration, key_decoder: Decoder[K] | None, value_decoder: Decoder[V] | None
    ) -> dict[str, list[KafkaStream[K, V]]]:
        check_function("key_decoder", key_decoder)
        check_function("value_decoder", value_decoder)
        self._check_process()
        if self._is_closed:
            raise ClosedError("the consumer has been shut down; create a new one")
        if self._runtime is not None:
            raise MessageStreamsExistError("the message streams of this consumer were already created")
        runtime = ConsumerRuntime(
            self.config, registration, key_decoder, value_decoder, self._listener, self._health_listener
        )
        self._runtime = runtime  # before start(), so that shutdown() can interrupt it
        try:
            if self._is_closed:  # shutdown() was called before _runtime was set
                raise ClosedError("the consumer has been shut down; create a new one")
            if self._is_stopping:  # stop() was called before _runtime was set
                runtime.stop()
            runtime.start()
        except BaseException:
            self._runtime = None
            run_protected(runtime.close, self._closing_thread)
            raise
        return runtime.streams

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener | None) -> None:
        """Set the rebalance listener, or None to remove it; must be called before the streams are created.

        Raises:
            MessageStreamsExistError: the streams were already created.
        """
        check_methods("listener", listener, "before_releasing_partitions", "before_starting_fetchers")
        if self._runtime is not None:
            raise MessageStreamsExistError("the rebalance listener must be set before the message streams are created")
        self._listener = listener

    def set_health_listener(self, listener: HealthListener | None) -> None:
        """Set a function that is called when ``health`` changes; must be called before the streams are created.

        None removes it.

        One of the consumer's threads calls it within a second of the change. The function should return quickly.

        Raises:
            MessageStreamsExistError: the streams were already created.
        """
        check_function("listener", listener)
        if self._runtime is not None:
            raise MessageStreamsExistError("the health listener must be set before the message streams are created")
        self._health_listener = listener

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, retry_on_failure: bool = True
    ) -> dict[TopicPartition, int]:
        """Commit the offsets of all delivered messages, including the last message of each stream.

        These messages count as consumed even if the commit fails.

        Args:
            offsets: offsets to commit instead (the next offset to consume, by owned partition). They may be lower than
                the committed offsets.
            retry_on_failure: whether to retry commits to Kafka, up to ``offsets.commit.max.retries`` times with a
                back-off of ``offsets.channel.backoff.ms``. (In Kafka 1.1, this flag has the opposite effect.)

        Returns:
            the committed offsets.

        Raises:
            OwnershipLostError: the consumer does not own one of the partitions.
            ZooKeeperUnavailableError, BrokerUnavailableError: not all offsets were committed.
            ClosedError: the consumer has no streams, or has been shut down.
        """
        retries = check_flag("retry_on_failure", retry_on_failure)
        retrying = create_retrying(self.config, self._shutdown_event, retries=retries)
        return retrying(self._active_runtime().commit, offsets)

    def switch_offsets_storage(self, storage: str, *, dual_commit: bool | None = None) -> dict[TopicPartition, int]:
        """Change ``offsets.storage`` and ``dual.commit.enabled`` while the consumer is running.

        The committed offsets of owned partitions are copied first. To migrate a group, switch its members one by one
        to ``kafka`` with ``dual_commit=True``, which reads and writes both storages, and then to ``kafka`` with
        ``dual_commit=False``.

        Args:
            storage: new offset storage, ``zookeeper`` or ``kafka``.
            dual_commit: whether to commit offsets to ZooKeeper as well; by default, True if ``storage`` is ``kafka``.

        Returns:
            the committed offsets in the new storage.

        Raises:
            ConfigurationError: ``storage`` is neither ``zookeeper`` nor ``kafka``, or ``dual_commit`` is invalid.
            ClosedError: the consumer has no streams, or has been shut down.
            ZkConsumerError: the offsets could not be copied; the current storage remains in use.
        """
        if dual_commit is not None:
            dual_commit = check_flag("dual_commit", dual_commit)
        parsed = ConsumerConfig.parse("offsets.storage", storage)
        checked = dataclasses.replace(
            self.config,
            offsets_storage=parsed,
            dual_commit_enabled=parsed == "kafka" if dual_commit is None else dual_commit,
        )
        switch = self._active_runtime().member.switch_offsets_storage
        retrying = create_retrying(self.config, self._shutdown_event, retries=True)
        stored = retrying(switch, checked.offsets_storage, checked.dual_commit_enabled)
        self.config = checked
        return stored

    def _active_runtime(self) -> ConsumerRuntime:
        self._check_process()
        if self._is_closed:
            raise ClosedError("offsets cannot be committed, because the consumer has been shut down")
        if self._runtime is None:
            raise ClosedError("offsets cannot be committed before the message streams are created")
        return self._runtime

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            raise ClosedError(
                f"this consumer was created in process {self._process_id} and cannot be used after a fork, because its "
                "connections and threads belong to that process; create a new consumer in this process"
            )
        _check_interpreter()

    def stop(self) -> None:
        """End the iteration over all streams and their batches, once the current message or batch is processed.

        The last message or batch of each stream counts as consumed when the next one is requested. The consumer remains
        in the group until the ``with`` block ends or ``shutdown`` is called. ``create_message_streams`` stops waiting.
        Errors are no longer raised by the streams.

        May be called repeatedly, from any thread, and in a signal handler: it neither blocks nor acquires a lock.
        """
        self._is_stopping = True
        if self._runtime is not None:
            self._runtime.stop()

    def shutdown(self) -> None:
        """Leave the group: stop fetching, end the streams, commit consumed offsets and release all partitions.

        If ``auto.commit.enable`` is false, no offsets are committed. Blocks for a limited time. If a signal handler
        raises an exception in the meantime, the exception is raised after the consumer has left the group. May be
        called repeatedly, and from any thread. In a signal handler, call ``stop`` instead, because the handler may have
        interrupted a stream operation.

        Raises:
            ClosedError: the interpreter is exiting, for example because a ``__del__`` method called ``shutdown``. The
                consumer does not leave the group.
        """
        run_protected(self._leave, self._closing_thread)

    def _leave(self, *, commits_delivered: bool = False) -> None:
        """Leave the group.

        Args:
            commits_delivered: whether the last message of each stream counts as consumed.
        """
        if os.getpid() != self._process_id:
            return  # after a fork, the connections belong to the parent process
        runtime = self._runtime
        is_open = runtime is not None and not self._is_closed
        if is_open:
            _check_interpreter()
        try:
            if is_open and commits_delivered and self.config.auto_commit_enable:
                self.commit_offsets()
        finally:
            self._is_closed = True
            self._shutdown_event.set()
            if runtime is not None:
                runtime.close()
            atexit.unregister(self._leave)

    @property
    def consumer_id(self) -> str | None:
        """The consumer's id in the group; None before the streams are created."""
        return self._runtime.member.consumer_id if self._runtime else None

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The owned partitions and their thread ids."""
        return self._runtime.member.assignment if self._runtime else {}

    @property
    def unbalanced_since(self) -> float | None:
        """``time.monotonic()`` when rebalances started to fail, or when the member failed; otherwise None.

        Failed rebalances are retried indefinitely. A failed member does not rejoin.
        """
        return self._runtime.member.unbalanced_since if self._runtime else None

    @property
    def health(self) -> Health:
        """Whether the consumer is making progress, and if not, why; healthy before the streams are created."""
        return self._runtime.health() if self._runtime else Health()

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """Number of records not fetched yet, by partition; -1 if unknown."""
        return {info.partition: info.lag for info in self._runtime.fetchers.infos} if self._runtime else {}

    @property
    def metrics(self) -> Mapping[MetricName, Mapping[str, float]]:
        """A snapshot of all metrics, see ``zkconsumer.metrics``; empty before the streams are created."""
        return self._runtime.metrics.snapshot() if self._runtime else {}


def create_consumer(
    config: ConsumerConfig | Mapping[str, object] | str | os.PathLike[str], *, strict: bool = False
) -> ZookeeperConsumerConnector:
    """Return a consumer; it joins the group when its streams are created.

    Args:
        config: the configuration, properties by name, or the path of a properties file.
        strict: whether unknown properties raise an error; unused if ``config`` is a ``ConsumerConfig``.

    Raises:
        ConfigurationError: the file cannot be read, or a property is missing or invalid; see
            ``ConsumerConfig.from_dict``.
    """
    check_flag("strict", strict)
    if isinstance(config, str | os.PathLike):
        config = ConsumerConfig.from_properties(config, strict=strict)
    elif isinstance(config, Mapping):
        config = ConsumerConfig.from_dict(config, strict=strict)
    check_type("config", config, ConsumerConfig, "a ConsumerConfig, a dict of properties, or a path")
    return ZookeeperConsumerConnector(config)


def _check_interpreter() -> None:
    """Raise ClosedError if the interpreter is exiting: daemon threads no longer run, so joining them would hang."""
    if sys.is_finalizing():
        raise ClosedError(
            "the interpreter is exiting, so the consumer's threads no longer run: uncommitted offsets are lost, and "
            "the member's znodes remain until its ZooKeeper session expires; call shutdown() before the program exits, "
            "for example with atexit.register"
        )


__all__ = ["ZookeeperConsumerConnector", "create_consumer"]
