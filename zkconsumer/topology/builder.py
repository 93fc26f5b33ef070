"""``Topology``: sources, processors, sinks and stores, and their connections.

Source: Kafka 3.9 org.apache.kafka.streams.Topology and InternalTopologyBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from zkconsumer.argument_checks import to_flag, to_integer
from zkconsumer.errors import TopologyError
from zkconsumer.topology.checks import check_functions, check_name, to_tuple
from zkconsumer.topology.declared import description
from zkconsumer.topology.declared.nodes import (
    GlobalStore,
    Node,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TopicExtractor,
    UnionFind,
    check_connection,
    check_global_store,
    check_offset_reset,
    check_parents,
    check_supplier,
    group_nodes,
)
from zkconsumer.topology.declared.patterns import check_pattern, check_topics
from zkconsumer.topology.processor import ProcessorSupplier
from zkconsumer.topology.resolved import (
    ResolvedTopology,
    count_internal_partitions,
    resolve_topics,
    select_stores,
)
from zkconsumer.topology.serdes import Deserializer, Serde, Serializer, to_deserializer, to_serializer
from zkconsumer.topology.stores.builder import StoreBuilder, to_builders
from zkconsumer.topology.subtopology import Subtopology
from zkconsumer.topology.timestamps import TimestampExtractor


class Topology:
    """A graph of sources, processors, sinks and stores. Methods that change the topology return it.

    As in Kafka Streams, all elements are declared with methods of this class. Node names and store names must be
    unique, and only one source can read a topic.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._connected = UnionFind()
        self._stores: dict[str, StoreBuilder] = {}
        self._store_users: dict[str, str] = {}
        self._global_stores: dict[str, GlobalStore] = {}
        self._internal_topics: dict[str, int | None] = {}
        self._copartitioned: list[tuple[str, ...]] = []

    # ---- nodes ----

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] = (),
        *,
        pattern: str | None = None,
        offset_reset: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        key_deserializer: Deserializer | Serde | None = None,
        value_deserializer: Deserializer | Serde | None = None,
    ) -> Topology:
        """Add a node that reads topics.

        Args:
            name: name of the node.
            topics: topic name, or a sequence of topic names.
            pattern: Java regular expression that selects topics, as an alternative to ``topics``. It must not contain
                commas, spaces or quotation marks.
            offset_reset: start position of a new application, ``earliest`` or ``latest``; None means ``earliest``.
            timestamp_extractor: function that returns a record's timestamp; None uses the application's default.
            key_deserializer: key deserializer or serde; None uses the application's default.
            value_deserializer: value deserializer or serde; None uses the application's default.

        Raises:
            TopologyError: the name or a topic is already in use, neither a topic nor a pattern is given, or an argument
                is invalid.
        """
        self._check_new(name)
        key, value = to_deserializer(key_deserializer), to_deserializer(value_deserializer)
        names = (topics,) if isinstance(topics, str) else to_tuple(f"topics of source {name!r}", topics)
        check_offset_reset(f"source {name!r}", offset_reset)
        check_functions(
            f"source {name!r}",
            timestamp_extractor=timestamp_extractor,
            key_deserializer=key,
            value_deserializer=value,
        )
        if pattern is None:
            check_topics(name, names, self._sources())
        elif names:
            raise TopologyError(f"source {name!r}: topics and pattern are mutually exclusive")
        else:
            check_pattern(name, pattern, self._sources(), self._global_topics())
        self._nodes[name] = SourceNode(name, names, pattern, offset_reset, timestamp_extractor, key, value)
        self._connected.add(name)
        return self

    def add_processor(
        self,
        name: str,
        supplier: ProcessorSupplier,
        *parents: str,
        stores: Iterable[StoreBuilder] = (),
        keeps_keys: bool = False,
    ) -> Topology:
        """Add a node that processes records.

        Args:
            name: name of the node.
            supplier: class or function that returns a new processor on each call.
            parents: names of the parent nodes, whose records the processor receives.
            stores: stores to add and connect to the processor.
            keeps_keys: whether a record that the processor forwards in ``process`` must have the key of the record
                that it received. If True, another key is treated as an error of the processor.

        Raises:
            TopologyError: the name is already in use, no parent is given, a parent does not exist or cannot have
                children, the supplier fails or does not return a new processor on each call, or another store has the
                name of one of ``stores``.
        """
        self._check_new(name)
        check_parents("processor", name, parents, self._nodes, self._global_processors())
        check_supplier(name, supplier)
        builders = to_builders(name, stores)
        for index, builder in enumerate(builders):
            self._check_store(builder)
            if any(builder.name == other.name and builder is not other for other in builders[:index]):
                raise TopologyError(f"processor {name!r} has two stores named {builder.name!r}")
        flag = to_flag(keeps_keys)
        if flag is None:
            raise TopologyError(f"processor {name!r}: keeps_keys must be True or False, got {keeps_keys!r}")
        self._add_child(ProcessorNode(name, parents, supplier, keeps_keys=flag))
        for builder in builders:
            self.add_state_store(builder, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicExtractor,
        *parents: str,
        key_serializer: Serializer | Serde | None = None,
        value_serializer: Serializer | Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """Add a node that writes records to a topic.

        Args:
            name: name of the node.
            topic: topic name, or a function that returns the topic for a record.
            parents: names of the parent nodes, whose records the sink receives.
            key_serializer: key serializer or serde; None uses the application's default.
            value_serializer: value serializer or serde; None uses the application's default.
            partitioner: function that selects the partition; None uses the producer's partitioner.

        Raises:
            TopologyError: the name is already in use, no parent is given, a parent does not exist or cannot have
                children, or an argument is invalid.
        """
        self._check_new(name)
        if not callable(topic):
            check_name("topic", topic)
        check_parents("sink", name, parents, self._nodes, self._global_processors())
        key, value = to_serializer(key_serializer), to_serializer(value_serializer)
        check_functions(f"sink {name!r}", key_serializer=key, value_serializer=value, partitioner=partitioner)
        fixed, extractor = (None, topic) if callable(topic) else (topic, None)
        self._add_child(SinkNode(name, parents, fixed, extractor, key, value, partitioner))
        return self

    # ---- stores ----

    def add_state_store(self, builder: StoreBuilder, *processors: str) -> Topology:
        """Add a store, and connect it to ``processors``.

        The same builder can be added again. As in Kafka Streams, processors that are connected from then on do not join
        the sub-topology of the processors that were connected before.

        Raises:
            TopologyError: another store has the same name, or a processor cannot be connected.
        """
        self._check_store(builder)
        for processor in processors:
            check_connection(self._nodes, processor, builder.name)
        if builder.name in self._stores:
            # As in Kafka Streams, processors connected later do not join the sub-topology of the store's earlier users.
            self._store_users.pop(builder.name, None)
        self._stores[builder.name] = builder
        for processor in processors:
            self._connect(processor, builder.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Connect a processor to stores.

        Processors that share a store belong to the same sub-topology, unless the store was added again after one
        processor was connected and before the other; see ``add_state_store``.

        Raises:
            TopologyError: the processor or a store does not exist, a store is global, or no store is given.
        """
        check_name("processor", processor)
        if not stores:
            raise TopologyError(
                f"processor {processor!r}: connect_processor_and_state_stores() needs at least one store"
            )
        for store in stores:
            check_name("store", store)
            if store in self._global_stores:
                raise TopologyError(f"store {store!r} is global and cannot be connected; every processor can access it")
            if store not in self._stores:
                raise TopologyError(
                    f"store {store!r} has not been added yet, so it cannot be connected to processor {processor!r}"
                )
            check_connection(self._nodes, processor, store)
        for store in stores:
            self._connect(processor, store)
        return self

    def add_global_store(
        self,
        builder: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: ProcessorSupplier,
        *,
        timestamp_extractor: TimestampExtractor | None = None,
        key_deserializer: Deserializer | Serde | None = None,
        value_deserializer: Deserializer | Serde | None = None,
    ) -> Topology:
        """Add a global store, which is updated from all partitions of a topic and can be read by every task.

        Args:
            builder: store builder with ``logging=False``.
            source: name of the node that reads the topic.
            topic: topic name.
            processor: name of the node that updates the store.
            supplier: class or function that returns a new processor on each call; the processor updates the store.
            timestamp_extractor: ignored, as in Kafka Streams; records keep their timestamps.
            key_deserializer: see ``add_source``.
            value_deserializer: see ``add_source``.

        Raises:
            TopologyError: a name or the topic is already in use, the builder has ``logging=True``, or another argument
                is invalid.
        """
        check_supplier(processor, supplier)
        self._check_new(source)
        self._check_new(processor)
        self._check_store(builder)
        if builder.name in self._stores:
            raise TopologyError(f"store {builder.name!r} already exists")
        check_global_store(builder)
        if source == processor:
            raise TopologyError(
                f"the source and the processor of a global store must have different names, got {source!r} for both"
            )
        key, value = to_deserializer(key_deserializer), to_deserializer(value_deserializer)
        check_functions(
            f"source {source!r}",
            timestamp_extractor=timestamp_extractor,
            key_deserializer=key,
            value_deserializer=value,
        )
        check_topics(source, (topic,), self._sources())
        reader = SourceNode(source, (topic,), None, None, timestamp_extractor, key, value)
        writer = ProcessorNode(processor, (source,), supplier, (builder.name,))
        self._nodes[source] = reader
        self._connected.add(source)
        self._add_child(writer)
        self._global_stores[builder.name] = GlobalStore(builder, reader, writer)
        return self

    # ---- topics ----

    def add_internal_topic(self, topic: str, partitions: int | None = None) -> Topology:
        """Declare a topic that the application creates, writes and reads.

        In Kafka, the topic name is prefixed with the application id. Sources, sinks and ``describe`` use the name
        without the prefix.

        Args:
            topic: topic name without the application id.
            partitions: number of partitions; None derives it from the source topics of the upstream sub-topologies, or
                from co-partitioned topics.

        Raises:
            TopologyError: the name is empty or already declared, or ``partitions`` is not a positive integer.
        """
        check_name("topic", topic)
        if topic in self._internal_topics:
            raise TopologyError(f"internal topic {topic!r} already exists")
        number = to_integer(partitions)
        if partitions is not None and (number is None or not 1 <= number < 1 << 31):
            raise TopologyError(f"internal topic {topic!r}: partitions must be a positive integer, got {partitions!r}")
        self._internal_topics[topic] = number
        return self

    def copartition(self, *sources: str) -> Topology:
        """Require the topics of ``sources`` to have the same number of partitions, as joins do.

        Raises:
            TopologyError: a source does not exist, or fewer than two different sources are given.
        """
        for source in sources:
            check_name("source", source)
            if not isinstance(self._nodes.get(source), SourceNode):
                raise TopologyError(f"copartition(): {source!r} is not a source of the topology")
        if len(set(sources)) < 2:
            raise TopologyError(
                f"copartition() needs at least two different sources, got {', '.join(sources) or 'none'}"
            )
        self._copartitioned.append(sources)
        return self

    # ---- contents ----

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, in the order in which they were added."""
        return self._nodes

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """The stores by name, without global stores."""
        return self._stores

    @property
    def global_stores(self) -> Mapping[str, GlobalStore]:
        """The global stores by name."""
        return self._global_stores

    def resolve(self, partition_counts: Mapping[str, int] | None = None) -> ResolvedTopology:
        """Return the sub-topologies and their topics. The topology is not changed, so tasks can share it.

        Args:
            partition_counts: partition count of each existing topic; None means that no topics exist. A source with a
                pattern reads the existing topics that match the pattern; other sources always read their declared
                topics.

        Raises:
            TopologyError: two patterns match the same topic.
        """
        stores = {**self._stores, **{name: one.builder for name, one in self._global_stores.items()}}
        groups = [[self._nodes[name] for name in names] for names in group_nodes(self._nodes, self._connected)]
        found = resolve_topics(groups, stores, self._global_topics(), partition_counts or {})
        topics_of = {source: topics for one in found for source, topics in one.topics_of.items()}
        copartitioned = tuple(
            frozenset(topic for name in names for topic in topics_of[name]) for names in self._copartitioned
        )
        internal = count_internal_partitions(found, self._internal_topics, copartitioned)
        known = {topic: count for topic, count in internal.items() if count is not None}
        resolved = {
            one.number: replace(
                one,
                internal_topics=frozenset(self._internal_topics),
                partition_counts={**one.partition_counts, **{t: n for t, n in known.items() if t in one.source_topics}},
            )
            for one in found
        }
        return ResolvedTopology(resolved, copartitioned, internal)

    def subtopology(self, number: int, partition_counts: Mapping[str, int] | None = None) -> Subtopology:
        """Return the sub-topology with this number; see ``resolve``.

        Raises:
            TopologyError: the sub-topology does not exist.
        """
        found = self.resolve(partition_counts).subtopologies
        if number not in found:
            raise TopologyError(f"sub-topology {number!r} does not exist (number of sub-topologies: {len(found)})")
        return found[number]

    def combine(self) -> Subtopology:
        """Combine all sub-topologies into a single one without global stores, as ``TopologyTestDriver`` requires.

        A source with a pattern uses the pattern as its topic name.
        """
        of_global_stores = self._global_processors() | {one.source.name for one in self._global_stores.values()}
        nodes = [node for name, node in self._nodes.items() if name not in of_global_stores]
        sources = [node for node in nodes if isinstance(node, SourceNode)]
        return Subtopology(
            number=0,
            nodes=tuple(nodes),
            stores=select_stores(nodes, self._stores),
            topics_of={node.name: node.topics or (str(node.pattern),) for node in sources},
            internal_topics=frozenset(self._internal_topics),
        )

    def describe(self) -> str:
        """Return the topology description, byte-for-byte identical to the output of Kafka Streams."""
        sources = frozenset(store.source.name for store in self._global_stores.values())
        return description.describe(self._nodes, group_nodes(self._nodes, self._connected), sources)

    # ---- checks ----

    def _add_child(self, node: ProcessorNode | SinkNode) -> None:
        self._nodes[node.name] = node
        self._connected.add(node.name)
        self._connected.unite(node.name, node.parents)

    def _connect(self, processor: str, store: str) -> None:
        node = self._nodes[processor]
        assert isinstance(node, ProcessorNode)
        self._connected.unite(self._store_users.setdefault(store, processor), [processor])
        if store not in node.stores:
            self._nodes[processor] = replace(node, stores=(*node.stores, store))

    def _check_new(self, name: str) -> None:
        check_name("node", name)
        if name in self._nodes:
            raise TopologyError(f"node {name!r} already exists")

    def _global_processors(self) -> set[str]:
        return {store.processor.name for store in self._global_stores.values()}

    def _global_topics(self) -> set[str]:
        return {store.source.topics[0] for store in self._global_stores.values()}

    def _sources(self) -> list[SourceNode]:
        return [node for node in self._nodes.values() if isinstance(node, SourceNode)]

    def _check_store(self, builder: StoreBuilder) -> None:
        if not isinstance(builder, StoreBuilder):
            raise TopologyError(f"a store must be a StoreBuilder, got {builder!r}")
        if builder.name in self._global_stores or self._stores.get(builder.name, builder) is not builder:
            raise TopologyError(f"store {builder.name!r} already exists")
