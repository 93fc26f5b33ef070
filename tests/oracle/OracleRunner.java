import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.errors.ProductionExceptionHandler;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.InternalTopologyBuilder;
import org.apache.kafka.streams.processor.internals.ProcessorNode;
import org.apache.kafka.streams.processor.internals.StreamTask;
import org.apache.kafka.streams.processor.internals.StreamsProducer;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.apache.kafka.streams.state.internals.CachedStateStore;
import org.apache.kafka.streams.state.internals.MeteredSessionStore;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/** Runs topologies and scenarios, one JSON object per line, with Kafka Streams; generator.py makes them. */
public final class OracleRunner {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Number of partitions of each topic that a sink writes. */
    private static final int PARTITIONS = 3;

    public static void main(final String[] arguments) throws Exception {
        final PrintStream out = System.out;
        System.setOut(System.err);
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final JsonNode request = JSON.readTree(line);
            ObjectNode answer;
            try {
                if (request.has("bench")) {
                    answer = bench(request, arguments[0] + "/" + number++);
                } else if (request.has("cache_bytes")) {
                    answer = new Scenario(request, arguments[0] + "/" + number++).runCached();
                } else {
                    answer = request.has("events")
                        ? new Scenario(request, arguments[0] + "/" + number++).run()
                        : describe(request);
                }
            } catch (final Exception | AssertionError error) {
                answer = JSON.createObjectNode().put("text", String.valueOf(error));
                answer.set("error", classes(error));
            }
            out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            out.flush();
        }
    }

    /** Returns the names of the classes of an error and of its causes. */
    private static ArrayNode classes(final Throwable error) {
        final ArrayNode names = JSON.createArrayNode();
        for (Throwable one = error; one != null; one = one.getCause()) {
            names.add(one.getClass().getSimpleName());
        }
        return names;
    }

    private static ObjectNode describe(final JsonNode request) throws Exception {
        final Topology topology = new Declarations(request.get("steps")).topology;
        final ObjectNode answer = JSON.createObjectNode().put("describe", topology.describe().toString());
        final java.lang.reflect.Field field = Topology.class.getDeclaredField("internalTopologyBuilder");
        field.setAccessible(true);
        final InternalTopologyBuilder builder = (InternalTopologyBuilder) field.get(topology);
        final ObjectNode groups = answer.putObject("groups");
        builder.setApplicationId("app");
        builder.subtopologyToTopicsInfo().forEach((group, topics) -> {
            final ObjectNode entry = groups.putObject(number(group));
            final ArrayNode sources = entry.putArray("sources");
            topics.sourceTopics.stream().sorted().forEach(sources::add);
            final ArrayNode sinks = entry.putArray("sinks");
            topics.sinkTopics.stream().sorted().forEach(sinks::add);
        });
        return answer;
    }

    private static String number(final Object group) {
        try {
            final java.lang.reflect.Field field = group.getClass().getDeclaredField("nodeGroupId");
            field.setAccessible(true);
            return String.valueOf(field.get(group));
        } catch (final ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    /** Returns records per second of a driver that counts per key, window or session in memory. */
    private static ObjectNode bench(final JsonNode request, final String folder) {
        final String kind = request.get("bench").asText();
        final Duration retention = Duration.ofMinutes(10);
        final StoreBuilder<?> store;
        if (kind.equals("count")) {
            store = Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("s"), Serdes.Long(), Serdes.Long());
        } else if (kind.equals("tumbling")) {
            store = Stores.windowStoreBuilder(
                Stores.inMemoryWindowStore("s", retention, Duration.ofMinutes(1), false), Serdes.Long(), Serdes.Long());
        } else {
            store = Stores.sessionStoreBuilder(Stores.inMemorySessionStore("s", retention), Serdes.Long(), Serdes.Long());
        }
        final Topology topology = new Topology();
        topology.addSource("src", Serdes.Long().deserializer(), Serdes.ByteArray().deserializer(), "in");
        topology.addProcessor("p", () -> new Counter(kind), "src");
        topology.addStateStore(store.withLoggingDisabled(), "p");
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        config.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        final java.util.Random random = new java.util.Random(1);
        final int records = request.get("records").asInt();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config, Instant.ofEpochMilli(0))) {
            final org.apache.kafka.streams.TestInputTopic<Long, byte[]> input =
                driver.createInputTopic("in", Serdes.Long().serializer(), Serdes.ByteArray().serializer());
            final long started = System.nanoTime();
            for (int i = 0; i < records; i++) {
                input.pipeInput((long) random.nextInt(request.get("keys").asInt()), new byte[0], i * 10L);
            }
            return JSON.createObjectNode().put("rate", records * 1e9 / (System.nanoTime() - started));
        }
    }

    /** Counts per key, minute or session. */
    private static final class Counter implements Processor<Long, byte[], Void, Void> {
        private final String kind;
        private StateStore store;

        Counter(final String kind) {
            this.kind = kind;
        }

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            store = context.getStateStore("s");
        }

        @Override
        @SuppressWarnings("unchecked")
        public void process(final Record<Long, byte[]> record) {
            final Long key = record.key();
            if (kind.equals("count")) {
                final KeyValueStore<Long, Long> counts = (KeyValueStore<Long, Long>) store;
                final Long count = counts.get(key);
                counts.put(key, count == null ? 1L : count + 1);
            } else if (kind.equals("tumbling")) {
                final WindowStore<Long, Long> counts = (WindowStore<Long, Long>) store;
                final long start = record.timestamp() - record.timestamp() % 60_000;
                final Long count = counts.fetch(key, start);
                counts.put(key, count == null ? 1L : count + 1, start);
            } else {
                final SessionStore<Long, Long> counts = (SessionStore<Long, Long>) store;
                long start = record.timestamp();
                long end = start;
                long count = 1;
                final List<Windowed<Long>> joined = new ArrayList<>();
                try (KeyValueIterator<Windowed<Long>, Long> found = counts.findSessions(key, start - 30_000, end + 30_000)) {
                    while (found.hasNext()) {
                        final KeyValue<Windowed<Long>, Long> session = found.next();
                        start = Math.min(start, session.key.window().start());
                        end = Math.max(end, session.key.window().end());
                        count += session.value;
                        joined.add(session.key);
                    }
                }
                joined.forEach(counts::remove);
                counts.put(new Windowed<>(key, new SessionWindow(start, end)), count);
            }
        }
    }

    /** The calls that build a topology. */
    private static final class Declarations {
        final Topology topology = new Topology();
        final Map<String, StoreBuilder<?>> builders = new HashMap<>();
        final Map<String, String> kinds = new HashMap<>();

        Declarations(final JsonNode steps) {
            steps.forEach(this::apply);
        }

        private void apply(final JsonNode step) {
            final String name = text(step, "name");
            switch (step.get("call").asText()) {
                case "source":
                    final Topology.AutoOffsetReset reset = step.hasNonNull("reset")
                        ? Topology.AutoOffsetReset.valueOf(text(step, "reset").toUpperCase()) : null;
                    if (step.hasNonNull("pattern")) {
                        topology.addSource(reset, name, new Extractor(), new Reader(), new Reader(),
                            Pattern.compile(text(step, "pattern")));
                    } else {
                        topology.addSource(reset, name, new Extractor(), new Reader(), new Reader(), texts(step, "topics"));
                    }
                    break;
                case "processor":
                    final JsonNode program = step.path("program");
                    topology.addProcessor(name, () -> new Program(program, kinds), texts(step, "parents"));
                    break;
                case "shared":
                    final Program same = new Program(JSON.createObjectNode(), kinds);
                    topology.addProcessor(name, () -> same, texts(step, "parents"));
                    break;
                case "sink":
                    final StreamPartitioner<String, String> partitioner = step.path("partitioned").asBoolean() ? new ByLength() : null;
                    if (step.hasNonNull("topic")) {
                        topology.addSink(name, text(step, "topic"), new Writer(), new Writer(), partitioner, texts(step, "parents"));
                    } else {
                        topology.addSink(name, new ByKey(), new Writer(), new Writer(), partitioner, texts(step, "parents"));
                    }
                    break;
                case "store":
                    topology.addStateStore(builder(step.get("store")), texts(step, "processors"));
                    break;
                case "connect":
                    topology.connectProcessorAndStateStores(text(step, "processor"), texts(step, "stores"));
                    break;
                case "global":
                    final JsonNode update = step.path("program");
                    topology.addGlobalStore((StoreBuilder) builder(step.get("store")), text(step, "source"), new Reader(), new Reader(),
                        text(step, "topic"), text(step, "processor"), () -> (Processor) new Program(update, kinds));
                    break;
                default:
                    throw new AssertionError(step);
            }
        }

        private StoreBuilder<?> builder(final JsonNode store) {
            final String id = text(store, "id");
            if (!builders.containsKey(id)) {
                builders.put(id, newBuilder(store));
            }
            kinds.put(text(store, "name"), text(store, "kind"));
            return builders.get(id);
        }

        private StoreBuilder<?> newBuilder(final JsonNode store) {
            final String name = text(store, "name");
            final Serde<String> serde = Serdes.String();
            final Duration retention = Duration.ofMillis(store.path("retention").asLong());
            final Duration size = Duration.ofMillis(store.path("size").asLong());
            final boolean duplicates = store.path("duplicates").asBoolean();
            final StoreBuilder<?> builder;
            switch (text(store, "kind")) {
                case "key_value":
                    builder = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), serde, serde);
                    break;
                case "timestamped":
                    builder = Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore(name), serde, serde);
                    break;
                case "versioned":
                    builder = Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore(name, retention), serde, serde);
                    break;
                case "window":
                    builder = Stores.windowStoreBuilder(
                        Stores.persistentWindowStore(name, retention, size, duplicates), serde, serde);
                    break;
                case "timestamped_window":
                    builder = Stores.timestampedWindowStoreBuilder(
                        Stores.persistentTimestampedWindowStore(name, retention, size, duplicates), serde, serde);
                    break;
                case "session":
                    builder = Stores.sessionStoreBuilder(Stores.persistentSessionStore(name, retention), serde, serde);
                    break;
                default:
                    throw new AssertionError(store);
            }
            if (!store.path("logging").asBoolean(true)) {
                builder.withLoggingDisabled();
            }
            if (store.path("caching").asBoolean(false)) {
                builder.withCachingEnabled();
            }
            return builder;
        }
    }

    /** A topology, inputs, and what comes out. */
    private static final class Scenario {
        private final JsonNode request;
        private final Declarations declarations;
        private final Properties config = new Properties();
        private ObjectNode committed;

        Scenario(final JsonNode request, final String folder) {
            this.request = request;
            declarations = new Declarations(request.get("steps"));
            final JsonNode settings = request.path("config");
            config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
            config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
            config.put(StreamsConfig.STATE_DIR_CONFIG, folder);
            config.put(StreamsConfig.MAX_TASK_IDLE_MS_CONFIG, settings.path("idle").asLong(0));
            if (request.has("cache_bytes")) {
                config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, request.get("cache_bytes").asLong());
            }
            if (settings.path("deserialization").asText().equals("continue")) {
                config.put(StreamsConfig.DEFAULT_DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueExceptionHandler.class);
            }
            if (settings.path("processing").asText().equals("continue")) {
                config.put(StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueProcessingExceptionHandler.class);
            }
            if (settings.path("production").asText().equals("continue")) {
                config.put(StreamsConfig.DEFAULT_PRODUCTION_EXCEPTION_HANDLER_CLASS_CONFIG, ContinueProduction.class);
            }
        }

        ObjectNode run() throws ReflectiveOperationException {
            final ObjectNode answer = JSON.createObjectNode();
            final ArrayNode outputs = answer.putArray("outputs");
            final TopologyTestDriver driver = open();
            committed = contents(driver);
            field("consumer").set(driver, new MockConsumer<byte[], byte[]>(OffsetResetStrategy.EARLIEST) {
                @Override
                public synchronized void commitSync(final Map<TopicPartition, OffsetAndMetadata> offsets) {
                    committed = contents(driver);
                }
            });
            try {
                for (final JsonNode event : request.get("events")) {
                    try {
                        apply(driver, event);
                    } catch (final RuntimeException error) {
                        answer.put("text", String.valueOf(error)).set("error", classes(error));
                        outputs.add(read(driver));
                        answer.set("stores", committed);
                        return answer;
                    }
                    outputs.add(read(driver));
                    committed = contents(driver);
                }
                answer.put("dropped", dropped(driver)).set("stores", committed);
                return answer;
            } finally {
                try {
                    driver.close();
                } catch (final RuntimeException error) {
                    answer.put("close", String.valueOf(error));
                }
            }
        }

        /** Returns a driver whose producer knows several partitions of each topic. */
        private TopologyTestDriver open() throws ReflectiveOperationException {
            final TopologyTestDriver driver = new TopologyTestDriver(declarations.topology, config, Instant.ofEpochMilli(0));
            final MockProducer<byte[], byte[]> producer =
                new MockProducer<byte[], byte[]>(true, null, new ByteArraySerializer(), new ByteArraySerializer()) {
                    @Override
                    public List<PartitionInfo> partitionsFor(final String topic) {
                        return java.util.stream.IntStream.range(0, PARTITIONS)
                            .mapToObj(number -> new PartitionInfo(topic, number, null, null, null))
                            .collect(java.util.stream.Collectors.toList());
                    }
                };
            field("producer").set(driver, producer);
            final java.lang.reflect.Field inner = StreamsProducer.class.getDeclaredField("producer");
            inner.setAccessible(true);
            inner.set(field("testDriverProducer").get(driver), producer);
            return driver;
        }

        /** Runs the task of a driver, which commits after a number of records instead of each one. */
        @SuppressWarnings("unchecked")
        ObjectNode runCached() throws ReflectiveOperationException {
            final ObjectNode answer = JSON.createObjectNode();
            final ArrayNode outputs = answer.putArray("outputs");
            final TopologyTestDriver driver = open();
            final StreamTask task = (StreamTask) field("task").get(driver);
            final MockProducer<byte[], byte[]> producer = (MockProducer<byte[], byte[]>) field("producer").get(driver);
            final Map<String, Long> offsets = new HashMap<>();
            try {
                int queued = 0;
                for (final JsonNode event : request.get("events")) {
                    add(task, event, offsets.merge(text(event, "topic"), 1L, Long::sum) - 1);
                    if (++queued % request.get("commit_every").asInt() == 0) {
                        commit(task, producer, outputs);
                    }
                }
                process(task);
                final ArrayNode reads = answer.putArray("reads");
                for (final JsonNode read : request.get("reads")) {
                    final String name = read.get(1).asText();
                    try {
                        reads.add(Program.call(driver.getAllStateStores().get(name), declarations.kinds.get(name), read, null));
                    } catch (final RuntimeException error) {
                        reads.add(error.getClass().getSimpleName());
                    }
                }
                commit(task, producer, outputs);
                answer.put("dropped", dropped(driver));
                driver.getAllStateStores().values().forEach(store -> ((CachedStateStore<?, ?>) store).clearCache());
                answer.set("stores", contents(driver));
                return answer;
            } finally {
                driver.close();
            }
        }

        private static void add(final StreamTask task, final JsonNode event, final long offset) {
            final RecordHeaders headers = new RecordHeaders();
            event.path("headers").forEach(h -> headers.add(h.get(0).asText(), h.get(1).asText().getBytes(StandardCharsets.UTF_8)));
            final byte[] key = new StringSerializer().serialize("", text(event, "key"));
            final byte[] value = new StringSerializer().serialize("", text(event, "value"));
            final String topic = text(event, "topic");
            task.addRecords(new TopicPartition(topic, 0), List.of(new ConsumerRecord<>(topic, 0, offset, event.get("ts").asLong(),
                TimestampType.CREATE_TIME, ConsumerRecord.NULL_SIZE, ConsumerRecord.NULL_SIZE, key, value, headers, Optional.empty())));
        }

        /** Processes what is queued and commits; adds the records that were sent before and during the commit. */
        private void commit(final StreamTask task, final MockProducer<byte[], byte[]> producer, final ArrayNode outputs)
            throws ReflectiveOperationException {
            process(task);
            outputs.add(sent(producer));
            prepareCommit(task);
            task.postCommit(true);
            outputs.add(sent(producer));
        }

        /** Calls a method that has an argument since Kafka 4.0. */
        private static void prepareCommit(final StreamTask task) throws ReflectiveOperationException {
            for (final java.lang.reflect.Method method : StreamTask.class.getMethods()) {
                if (method.getName().equals("prepareCommit")) {
                    try {
                        method.invoke(task, method.getParameterCount() == 0 ? new Object[0] : new Object[] {true});
                    } catch (final java.lang.reflect.InvocationTargetException error) {
                        throw (RuntimeException) error.getCause();
                    }
                    return;
                }
            }
            throw new NoSuchMethodException("prepareCommit");
        }

        private static void process(final StreamTask task) {
            task.updateLags();
            while (task.hasRecordsQueued() && task.isProcessable(0)) {
                task.process(0);
                task.maybePunctuateStreamTime();
            }
        }

        private static ArrayNode sent(final MockProducer<byte[], byte[]> producer) {
            final ArrayNode all = JSON.createArrayNode();
            producer.history().stream().filter(record -> record.topic().startsWith("out")).forEach(record -> add(record, all));
            producer.clear();
            return all;
        }

        private static void add(final ProducerRecord<byte[], byte[]> record, final ArrayNode all) {
            final StringDeserializer text = new StringDeserializer();
            final ArrayNode one = all.addArray();
            one.add(record.topic()).add(record.partition());
            one.add(text.deserialize("", record.key())).add(text.deserialize("", record.value())).add(record.timestamp());
            final ArrayNode headers = one.addArray();
            for (final Header header : record.headers()) {
                headers.addArray().add(header.key()).add(new String(header.value(), StandardCharsets.UTF_8));
            }
        }

        private static java.lang.reflect.Field field(final String name) throws ReflectiveOperationException {
            final java.lang.reflect.Field field = TopologyTestDriver.class.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        }

        private void apply(final TopologyTestDriver driver, final JsonNode event) {
            if (event.has("advance")) {
                driver.advanceWallClockTime(Duration.ofMillis(event.get("advance").asLong()));
                return;
            }
            final RecordHeaders headers = new RecordHeaders();
            event.path("headers").forEach(h -> headers.add(h.get(0).asText(), h.get(1).asText().getBytes(StandardCharsets.UTF_8)));
            driver.createInputTopic(text(event, "topic"), new StringSerializer(), new StringSerializer()).pipeInput(
                new org.apache.kafka.streams.test.TestRecord<>(
                    text(event, "key"), text(event, "value"), headers, event.get("ts").asLong()));
        }

        /** Returns the new records of the output topics; those that the driver returns have no partitions. */
        @SuppressWarnings("unchecked")
        private ArrayNode read(final TopologyTestDriver driver) throws ReflectiveOperationException {
            final ArrayNode all = JSON.createArrayNode();
            final Map<String, Queue<ProducerRecord<byte[], byte[]>>> byTopic =
                (Map<String, Queue<ProducerRecord<byte[], byte[]>>>) field("outputRecordsByTopic").get(driver);
            for (final JsonNode topic : request.get("outputs")) {
                final Queue<ProducerRecord<byte[], byte[]>> records = byTopic.getOrDefault(topic.asText(), new LinkedList<>());
                records.forEach(record -> add(record, all));
                records.clear();
            }
            return all;
        }

        private static long dropped(final TopologyTestDriver driver) {
            return driver.metrics().entrySet().stream()
                .filter(e -> e.getKey().name().equals("dropped-records-total"))
                .mapToLong(e -> ((Double) e.getValue().metricValue()).longValue()).sum();
        }

        /** Returns the entries of all stores. */
        private ObjectNode contents(final TopologyTestDriver driver) {
            final ObjectNode stores = JSON.createObjectNode();
            new TreeMap<>(driver.getAllStateStores()).forEach((name, store) -> contents(name, store, stores.putArray(name)));
            return stores;
        }

        @SuppressWarnings("unchecked")
        private void contents(final String name, final StateStore store, final ArrayNode result) {
            final KeyValueIterator<?, ?> entries;
            switch (declarations.kinds.get(name)) {
                case "versioned":
                    versions((VersionedKeyValueStore<String, String>) store, result);
                    return;
                case "key_value":
                case "timestamped":
                    entries = ((ReadOnlyKeyValueStore<String, Object>) store).all();
                    break;
                case "window":
                case "timestamped_window":
                    entries = ((WindowStore<String, Object>) store).all();
                    break;
                case "session":
                    entries = ((SessionStore<String, String>) store).findSessions(null, null, 0, Long.MAX_VALUE);
                    break;
                default:
                    throw new AssertionError(name);
            }
            for (final String entry : drain(entries)) {
                result.add(entry);
            }
        }

        /** Adds the latest version of each key of the request, and those that were valid at its times. */
        private void versions(final VersionedKeyValueStore<String, String> store, final ArrayNode result) {
            for (final JsonNode key : request.get("probes").get("keys")) {
                result.add(key.asText() + "=" + show(store.get(key.asText())));
                for (final JsonNode time : request.get("probes").get("times")) {
                    result.add(key.asText() + "@" + time + "=" + show(store.get(key.asText(), time.asLong())));
                }
            }
        }
    }

    /** A processor whose operations are data. */
    private static final class Program implements Processor<String, String, String, String> {
        private final JsonNode program;
        private final Map<String, String> kinds;
        private final Map<String, Cancellable> schedules = new HashMap<>();
        private ProcessorContext<String, String> context;

        Program(final JsonNode program, final Map<String, String> kinds) {
            this.program = program;
            this.kinds = kinds;
        }

        @Override
        public void init(final ProcessorContext<String, String> context) {
            this.context = context;
            run(program.path("init"), null, new ArrayList<>());
        }

        @Override
        public void process(final Record<String, String> record) {
            run(program.path("process"), record, new ArrayList<>());
        }

        private void run(final JsonNode operations, final Record<String, String> record, final List<String> trace) {
            for (final JsonNode operation : operations) {
                switch (operation.get(0).asText()) {
                    case "forward":
                        forward(record.withValue(record.value() + operation.get(2).asText()), operation.get(1));
                        break;
                    case "same":
                        forward(record, operation.get(1));
                        break;
                    case "emit":
                        forward(record.withValue(String.join(";", trace)), operation.get(1));
                        break;
                    case "shift":
                        forward(record.withTimestamp(record.timestamp() + operation.get(2).asLong()), operation.get(1));
                        break;
                    case "header":
                        record.headers().add(operation.get(1).asText(), operation.get(2).asText().getBytes(StandardCharsets.UTF_8));
                        break;
                    case "when":
                        if (String.valueOf(record.value()).contains(operation.get(1).asText())) {
                            run(operation.get(2), record, trace);
                        }
                        break;
                    case "catch":
                        try {
                            run(operation.get(1), record, trace);
                        } catch (final RuntimeException error) {
                            trace.add("caught");
                        }
                        break;
                    case "fail":
                        throw failure(operation.get(1).asText());
                    case "schedule":
                        schedule(operation);
                        break;
                    case "listen":
                        listen(operation);
                        break;
                    case "cancel":
                        if (schedules.containsKey(operation.get(1).asText())) {
                            schedules.get(operation.get(1).asText()).cancel();
                        }
                        break;
                    case "commit":
                        context.commit();
                        break;
                    case "meta":
                        final Optional<RecordMetadata> metadata = context.recordMetadata();
                        trace.add(metadata.map(m -> m.topic() + "-" + m.partition() + "-" + m.offset()).orElse("none"));
                        break;
                    case "times":
                        trace.add(context.currentStreamTimeMs() + "/" + context.currentSystemTimeMs());
                        break;
                    case "store":
                        trace.add(call(operation, record));
                        break;
                    default:
                        throw new AssertionError(operation);
                }
            }
        }

        private static RuntimeException failure(final String kind) {
            switch (kind) {
                case "argument":
                    return new IllegalArgumentException("fail");
                case "unsupported":
                    return new UnsupportedOperationException("fail");
                default:
                    return new IllegalStateException("fail");
            }
        }

        private void forward(final Record<String, String> record, final JsonNode child) {
            if (child.isNull()) {
                context.forward(record);
            } else {
                context.forward(record, child.asText());
            }
        }

        private void schedule(final JsonNode operation) {
            if (schedules.containsKey(operation.get(3).asText())) {
                return;
            }
            final PunctuationType type = PunctuationType.valueOf(operation.get(1).asText());
            final JsonNode body = operation.get(4);
            final Cancellable schedule = context.schedule(Duration.ofMillis(operation.get(2).asLong()), type,
                now -> run(body, new Record<>("tick", operation.get(3).asText() + "@" + now, now), new ArrayList<>()));
            schedules.put(operation.get(3).asText(), schedule);
        }

        /** Forwards the changes of a cached store: new and old value, and the metadata of the change. */
        @SuppressWarnings("unchecked")
        private void listen(final JsonNode operation) {
            final InternalProcessorContext<String, String> internal = (InternalProcessorContext<String, String>) context;
            final ProcessorNode<?, ?, ?, ?> node = internal.currentNode();
            final WrappedStateStore<?, Object, Object> store =
                (WrappedStateStore<?, Object, Object>) (Object) context.getStateStore(operation.get(1).asText());
            store.setFlushListener(change -> {
                final ProcessorNode<?, ?, ?, ?> before = internal.currentNode();
                internal.setCurrentNode(node);
                try {
                    final List<String> trace = new ArrayList<>();
                    run(JSON.createArrayNode().add(JSON.createArrayNode().add("meta")), null, trace);
                    final String text = show(change.value().newValue) + "<" + show(change.value().oldValue) + " " + trace.get(0);
                    forward(change.withKey(show(change.key())).withValue(text), operation.get(3));
                } finally {
                    internal.setCurrentNode(before);
                }
            }, operation.get(2).asBoolean());
        }

        private String call(final JsonNode operation, final Record<String, String> record) {
            final String name = operation.get(1).asText();
            return call(context.getStateStore(name), kinds.get(name), operation, record);
        }

        /** Calls a store, and returns the text of the result. */
        @SuppressWarnings("unchecked")
        static String call(final StateStore store, final String kind, final JsonNode operation, final Record<String, String> record) {
            final String method = operation.get(2).asText();
            final List<Object> a = new ArrayList<>();
            for (int i = 3; i < operation.size(); i++) {
                a.add(argument(operation.get(i), record));
            }
            switch (kind) {
                case "key_value":
                    return keyValue((KeyValueStore<String, Object>) store, method, a, v -> v);
                case "timestamped":
                    return keyValue((KeyValueStore<String, Object>) store, method, a,
                        v -> v == null ? null : ValueAndTimestamp.make(v, record.timestamp()));
                case "versioned":
                    return versioned((VersionedKeyValueStore<String, String>) store, method, a);
                case "window":
                    return window((WindowStore<String, Object>) store, method, a, v -> v);
                case "timestamped_window":
                    return window((WindowStore<String, Object>) store, method, a,
                        v -> v == null ? null : ValueAndTimestamp.make(v, record.timestamp()));
                default:
                    return session((SessionStore<String, String>) store, method, a);
            }
        }

        private static Object argument(final JsonNode argument, final Record<String, String> record) {
            if (argument.isArray()) {
                return Math.max(0, record.timestamp() + argument.get(0).asLong());
            }
            if (argument.isNumber()) {
                return argument.asLong();
            }
            if (argument.isNull()) {
                return null;
            }
            switch (argument.asText()) {
                case "$k":
                    return record.key();
                case "$v":
                    final String value = record.value();
                    return value == null ? null : value.substring(0, Math.min(8, value.length()));
                default:
                    return argument.asText();
            }
        }

        private static String keyValue(final KeyValueStore<String, Object> store, final String method, final List<Object> a,
                                       final java.util.function.UnaryOperator<Object> wrap) {
            switch (method) {
                case "get":
                    return show(store.get((String) a.get(0)));
                case "put":
                    store.put((String) a.get(0), wrap.apply(a.get(1)));
                    return "put";
                case "put_if_absent":
                    return show(store.putIfAbsent((String) a.get(0), wrap.apply(a.get(1))));
                case "delete":
                    return show(store.delete((String) a.get(0)));
                case "range":
                    return list(store.range((String) a.get(0), (String) a.get(1)));
                case "reverse_range":
                    return list(store.reverseRange((String) a.get(0), (String) a.get(1)));
                case "all":
                    return list(store.all());
                case "reverse_all":
                    return list(store.reverseAll());
                case "prefix":
                    return list(store.prefixScan((String) a.get(0), new StringSerializer()));
                case "delete_all":
                    final List<String> found = new ArrayList<>();
                    try (KeyValueIterator<String, Object> entries = store.all()) {
                        while (entries.hasNext()) {
                            final String key = entries.next().key;
                            found.add(key);
                            store.delete(key);
                        }
                    }
                    return found.toString();
                default:
                    throw new AssertionError(method);
            }
        }

        private static String versioned(final VersionedKeyValueStore<String, String> store, final String method, final List<Object> a) {
            switch (method) {
                case "put":
                    return String.valueOf(store.put((String) a.get(0), (String) a.get(1), (Long) a.get(2)));
                case "get":
                    return show(store.get((String) a.get(0)));
                case "as_of":
                    return show(store.get((String) a.get(0), (Long) a.get(1)));
                case "delete":
                    return show(store.delete((String) a.get(0), (Long) a.get(1)));
                default:
                    throw new AssertionError(method);
            }
        }

        private static String window(final WindowStore<String, Object> store, final String method, final List<Object> a,
                                     final java.util.function.UnaryOperator<Object> wrap) {
            switch (method) {
                case "put":
                    store.put((String) a.get(0), wrap.apply(a.get(1)), (Long) a.get(2));
                    return "put";
                case "fetch":
                    return show(store.fetch((String) a.get(0), (Long) a.get(1)));
                case "times":
                    return list(store.fetch((String) a.get(0), (Long) a.get(1), (Long) a.get(2)));
                case "reverse_times":
                    return list(store.backwardFetch((String) a.get(0), (Long) a.get(1), (Long) a.get(2)));
                case "keys":
                    return list(store.fetch((String) a.get(0), (String) a.get(1), (Long) a.get(2), (Long) a.get(3)));
                case "reverse_keys":
                    return list(store.backwardFetch((String) a.get(0), (String) a.get(1), (Long) a.get(2), (Long) a.get(3)));
                case "fetch_all":
                    return list(store.fetchAll((Long) a.get(0), (Long) a.get(1)));
                case "reverse_fetch_all":
                    return list(store.backwardFetchAll((Long) a.get(0), (Long) a.get(1)));
                case "all":
                    return list(store.all());
                case "reverse_all":
                    return list(store.backwardAll());
                default:
                    throw new AssertionError(method);
            }
        }

        private static String session(final SessionStore<String, String> given, final String method, final List<Object> a) {
            final SessionStore<String, String> store = method.startsWith("reverse_") ? undecorated(given) : given;
            switch (method) {
                case "put":
                    store.put(windowed(a, 0), (String) a.get(3));
                    return "put";
                case "remove":
                    store.remove(windowed(a, 0));
                    return "removed";
                case "fetch_session":
                    return show(store.fetchSession((String) a.get(0), (Long) a.get(1), (Long) a.get(2)));
                case "find":
                    return list(store.findSessions((String) a.get(0), (Long) a.get(1), (Long) a.get(2)));
                case "reverse_find":
                    return list(store.backwardFindSessions((String) a.get(0), (Long) a.get(1), (Long) a.get(2)));
                case "find_keys":
                    return list(store.findSessions((String) a.get(0), (String) a.get(1), (Long) a.get(2), (Long) a.get(3)));
                case "reverse_find_keys":
                    return list(store.backwardFindSessions((String) a.get(0), (String) a.get(1), (Long) a.get(2), (Long) a.get(3)));
                case "fetch":
                    return list(store.fetch((String) a.get(0)));
                case "reverse_fetch":
                    return list(store.backwardFetch((String) a.get(0)));
                case "fetch_keys":
                    return list(store.fetch((String) a.get(0), (String) a.get(1)));
                case "reverse_fetch_keys":
                    return list(store.backwardFetch((String) a.get(0), (String) a.get(1)));
                default:
                    throw new AssertionError(method);
            }
        }

        /** Returns the store behind that of a processor, which does not pass on backward reads. */
        @SuppressWarnings("unchecked")
        private static SessionStore<String, String> undecorated(final SessionStore<String, String> store) {
            return store instanceof MeteredSessionStore
                ? store : ((WrappedStateStore<SessionStore<String, String>, String, String>) (Object) store).wrapped();
        }

        private static Windowed<String> windowed(final List<Object> a, final int from) {
            return new Windowed<>((String) a.get(from), new SessionWindow((Long) a.get(from + 1), (Long) a.get(from + 2)));
        }
    }

    private static String list(final KeyValueIterator<?, ?> entries) {
        return drain(entries).toString();
    }

    private static List<String> drain(final KeyValueIterator<?, ?> entries) {
        final List<String> result = new ArrayList<>();
        try (entries) {
            while (entries.hasNext()) {
                final KeyValue<?, ?> entry = entries.next();
                result.add(show(entry.key) + "=" + show(entry.value));
            }
        }
        return result;
    }

    private static String show(final Object value) {
        if (value instanceof ValueAndTimestamp) {
            final ValueAndTimestamp<?> pair = (ValueAndTimestamp<?>) value;
            return pair.value() + "#" + pair.timestamp();
        }
        if (value instanceof VersionedRecord) {
            final VersionedRecord<?> version = (VersionedRecord<?>) value;
            return version.value() + "#" + version.timestamp();
        }
        if (value instanceof Windowed) {
            final Windowed<?> windowed = (Windowed<?>) value;
            return windowed.key() + "@" + windowed.window().start() + "/" + windowed.window().end();
        }
        return String.valueOf(value);
    }

    /** Deserializes text; fails for text with "!bad". */
    private static final class Reader implements Deserializer<String> {
        @Override
        public String deserialize(final String topic, final byte[] data) {
            final String text = data == null ? null : new String(data, StandardCharsets.UTF_8);
            if (text != null && text.contains("!bad")) {
                throw new IllegalArgumentException("bad");
            }
            return text;
        }
    }

    /** Serializes text; fails for text with "!out". */
    private static final class Writer implements Serializer<String> {
        @Override
        public byte[] serialize(final String topic, final String text) {
            if (text != null && text.contains("!out")) {
                throw new IllegalArgumentException("out");
            }
            return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
        }
    }

    /** Returns the timestamp of the record, a negative one for "!neg", the time of the partition for "!prev". */
    private static final class Extractor implements TimestampExtractor {
        @Override
        public long extract(final ConsumerRecord<Object, Object> record, final long partitionTime) {
            final String value = String.valueOf(record.value());
            if (value.contains("!neg")) {
                return -1;
            }
            return value.contains("!prev") ? Math.max(partitionTime, 0) : record.timestamp();
        }
    }

    /** Selects the topic "out-" and the key. */
    private static final class ByKey implements TopicNameExtractor<String, String> {
        @Override
        public String extract(final String key, final String value, final org.apache.kafka.streams.processor.RecordContext context) {
            return "out-" + key;
        }

        @Override
        public String toString() {
            return "by_key";
        }
    }

    /** Selects the producer's choice, no partition, one or two, by the length of key and value; fails for "!part". */
    private static final class ByLength implements StreamPartitioner<String, String> {
        /** Implements a method that Kafka 4.0 removed. */
        public Integer partition(final String topic, final String key, final String value, final int partitions) {
            throw new AssertionError(topic);
        }

        @Override
        public Optional<Set<Integer>> partitions(final String topic, final String key, final String value, final int partitions) {
            final String text = key + value;
            if (text.contains("!part")) {
                throw new IllegalArgumentException("part");
            }
            final int length = text.length() + topic.length();
            switch (length % 5) {
                case 0:
                    return Optional.empty();
                case 1:
                    return Optional.of(Set.of());
                case 2:
                    return Optional.of(text.contains("!out") ? Set.of(0) : new HashSet<>(List.of(partitions - 1, 0)));
                default:
                    return Optional.of(Set.of(length % partitions));
            }
        }
    }

    /** Continues after records that cannot be serialized. */
    public static final class ContinueProduction implements ProductionExceptionHandler {
        @Override
        public void configure(final Map<String, ?> configs) { }

        @Override
        @SuppressWarnings("rawtypes")
        public ProductionExceptionHandlerResponse handleSerializationException(
            final org.apache.kafka.streams.errors.ErrorHandlerContext context,
            final org.apache.kafka.clients.producer.ProducerRecord record, final Exception exception,
            final SerializationExceptionOrigin origin) {
            return ProductionExceptionHandlerResponse.CONTINUE;
        }
    }

    private static String text(final JsonNode node, final String field) {
        return node.hasNonNull(field) ? node.get(field).asText() : null;
    }

    private static String[] texts(final JsonNode node, final String field) {
        final List<String> result = new ArrayList<>();
        node.path(field).forEach(item -> result.add(item.isNull() ? null : item.asText()));
        return result.toArray(new String[0]);
    }
}
