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
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.processor.internals.StreamTask;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** Builds pipelines of the DSL, one JSON object per line, and runs them with Kafka Streams; dsl_generator.py makes them. */
@SuppressWarnings({"unchecked", "rawtypes"})
public final class DslRunner {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Maximum size of the keys and values of all outputs, in bytes: joins of joins can write more than fits in memory. */
    private static final long MAX_OUTPUT = 1 << 22;

    private final Map<String, Object> outputs = new HashMap<>();
    private final StreamsBuilder builder = new StreamsBuilder();

    public static void main(final String[] arguments) throws Exception {
        final PrintStream out = System.out;
        System.setOut(System.err);
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer;
            try {
                answer = run(JSON.readTree(line), arguments[0] + "/" + number++);
            } catch (final Exception | AssertionError error) {
                answer = JSON.createObjectNode().put("text", String.valueOf(error));
                final ArrayNode names = answer.putArray("error");
                for (Throwable one = error; one != null; one = one.getCause()) {
                    names.add(one.getClass().getSimpleName());
                }
            }
            out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            out.flush();
        }
    }

    private static ObjectNode run(final JsonNode request, final String folder) {
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        config.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, request.path("cache").asLong());
        if (request.path("optimize").asBoolean()) {
            config.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
        }
        final DslRunner pipeline = new DslRunner();
        request.get("steps").forEach(pipeline::add);
        final Topology topology = pipeline.builder.build(config);
        final ObjectNode answer = JSON.createObjectNode().put("describe", topology.describe().toString());
        if (!request.has("events")) {
            return answer;
        }
        final ArrayNode sent = answer.putArray("outputs");
        long size = 0;
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config, Instant.ofEpochMilli(0))) {
            final Map<String, TestInputTopic<String, String>> topics = new HashMap<>();
            for (final JsonNode event : request.get("events")) {
                if (event.has("advance")) {
                    driver.advanceWallClockTime(Duration.ofMillis(event.get("advance").asLong()));
                } else {
                    final RecordHeaders headers = new RecordHeaders();
                    event.path("headers").forEach(h -> headers.add(h.get(0).asText(), bytes(h.get(1))));
                    topics.computeIfAbsent(text(event, "topic"),
                        name -> driver.createInputTopic(name, new StringSerializer(), new StringSerializer()))
                        .pipeInput(new TestRecord<>(text(event, "key"), text(event, "value"), headers, event.get("ts").asLong()));
                }
                final ArrayNode records = sent.addArray();
                for (final JsonNode topic : request.get("outputs")) {
                    for (ProducerRecord<byte[], byte[]> one : read(driver, topic.asText())) {
                        final ArrayNode record = records.addArray();
                        size += sizeOf(one.key()) + sizeOf(one.value());
                        if (size > MAX_OUTPUT) {
                            throw new IllegalStateException("the outputs have more than " + MAX_OUTPUT + " bytes");
                        }
                        record.add(one.topic()).add(hex(one.key())).add(hex(one.value())).add(one.timestamp());
                        final ArrayNode headers = record.addArray();
                        one.headers().forEach(header -> headers.addArray().add(header.key()).add(hex(header.value())));
                    }
                }
            }
            final double[] dropped = {0};
            driver.metrics().forEach((name, metric) -> {
                if (name.name().equals("dropped-records-total")) {
                    dropped[0] += (Double) metric.metricValue();
                }
            });
            answer.put("dropped", (long) dropped[0]);
            final ObjectNode stores = answer.putObject("stores");
            for (final JsonNode name : request.get("stores")) {
                final ArrayNode entries = stores.putArray(name.asText());
                contents(driver, name.asText()).forEach(entries::add);
            }
        }
        return answer;
    }

    private static byte[] bytes(final JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    private static List<ProducerRecord<byte[], byte[]>> read(final TopologyTestDriver driver, final String topic) {
        try {
            final java.lang.reflect.Method method = TopologyTestDriver.class.getDeclaredMethod("readRecord", String.class);
            method.setAccessible(true);
            final List<ProducerRecord<byte[], byte[]>> found = new ArrayList<>();
            for (Object one = method.invoke(driver, topic); one != null; one = method.invoke(driver, topic)) {
                found.add((ProducerRecord<byte[], byte[]>) one);
            }
            return found;
        } catch (final ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    private static List<String> contents(final TopologyTestDriver driver, final String name) {
        final List<String> found = new ArrayList<>();
        final StateStore store = driver.getAllStateStores().get(name);
        final KeyValueIterator<?, ?> entries;
        if (store instanceof TimestampedWindowStore) {
            entries = ((TimestampedWindowStore<?, ?>) store).all();
        } else if (store instanceof SessionStore) {
            entries = ((SessionStore<Object, Object>) store).findSessions(null, null, 0, Long.MAX_VALUE);
        } else if (store instanceof TimestampedKeyValueStore) {
            entries = ((TimestampedKeyValueStore<?, ?>) store).all();
        } else {
            return found;
        }
        while (entries.hasNext()) {
            final KeyValue<?, ?> entry = entries.next();
            final Object value = entry.value;
            found.add(show(entry.key) + "=" + (value instanceof ValueAndTimestamp
                ? ((ValueAndTimestamp<?>) value).value() + "@" + ((ValueAndTimestamp<?>) value).timestamp() : value));
        }
        entries.close();
        java.util.Collections.sort(found);
        return found;
    }

    private static int sizeOf(final byte[] data) {
        return data == null ? 0 : data.length;
    }

    private static String hex(final byte[] data) {
        if (data == null) {
            return null;
        }
        final StringBuilder text = new StringBuilder();
        for (final byte one : data) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }

    private static String text(final JsonNode node, final String name) {
        return node.hasNonNull(name) ? node.get(name).asText() : null;
    }

    // ---- steps ----

    private void add(final JsonNode step) {
        final Object result = apply(step);
        if (step.hasNonNull("out")) {
            outputs.put(text(step, "out"), result);
        }
    }

    private <T> T in(final JsonNode step, final String name) {
        return (T) outputs.get(text(step, name));
    }

    private static Named named(final JsonNode step) {
        return Named.as(text(step, "name"));
    }

    private static Serde<Object> serde(final JsonNode step, final String name) {
        final String kind = text(step, name);
        if (kind == null) {
            return null;
        }
        if (kind.equals("L")) {
            return (Serde) Serdes.Long();
        }
        if (kind.equals("W")) {
            return (Serde) org.apache.kafka.streams.kstream.WindowedSerdes.sessionWindowedSerdeFrom(String.class);
        }
        if (kind.startsWith("T")) {
            return (Serde) org.apache.kafka.streams.kstream.WindowedSerdes.timeWindowedSerdeFrom(
                String.class, Long.parseLong(kind.substring(1)));
        }
        return (Serde) Serdes.String();
    }

    private static <S extends StateStore> Materialized<Object, Object, S> materialized(final JsonNode store) {
        Materialized<Object, Object, S> result = store.hasNonNull("name")
            ? Materialized.as(text(store, "name")) : Materialized.with(null, null);
        if (store.hasNonNull("history")) {
            result = (Materialized) Materialized.as(
                Stores.persistentVersionedKeyValueStore(text(store, "name"), Duration.ofMillis(store.get("history").asLong())));
        }
        result = result.withKeySerde(serde(store, "key")).withValueSerde(serde(store, "value"));
        if (store.hasNonNull("retention")) {
            result = result.withRetention(Duration.ofMillis(store.get("retention").asLong()));
        }
        return store.path("caching").asBoolean(true) ? result : result.withCachingDisabled();
    }

    private Object apply(final JsonNode step) {
        final boolean isNamed = step.hasNonNull("name");
        final boolean isStored = step.hasNonNull("store");
        final String f = text(step, "f");
        switch (text(step, "op")) {
            case "stream":
                Consumed<Object, Object> consumed = Consumed.with(serde(step, "key"), serde(step, "value"));
                consumed = isNamed ? consumed.withName(text(step, "name")) : consumed;
                return step.hasNonNull("pattern")
                    ? builder.stream(java.util.regex.Pattern.compile(text(step, "pattern")), consumed)
                    : builder.stream(texts(step, "topics"), consumed);
            case "table": {
                Consumed<Object, Object> read = Consumed.with(serde(step, "key"), serde(step, "value"));
                read = isNamed ? read.withName(text(step, "name")) : read;
                return isStored ? builder.table(text(step, "topic"), read, materialized(step.get("store")))
                    : builder.table(text(step, "topic"), read);
            }
            case "global_table": {
                Consumed<Object, Object> read = Consumed.with(serde(step, "key"), serde(step, "value"));
                read = isNamed ? read.withName(text(step, "name")) : read;
                return isStored ? builder.globalTable(text(step, "topic"), read, materialized(step.get("store")))
                    : builder.globalTable(text(step, "topic"), read);
            }
            case "filter":
            case "filter_not":
                return filter(step, outputs.get(text(step, "in")), text(step, "op").equals("filter"));
            case "map_values":
                return mapValues(step);
            case "map":
                return isNamed ? stream(step).map(pair(f), named(step)) : stream(step).map(pair(f));
            case "select_key":
                return isNamed ? stream(step).selectKey(key(f), named(step)) : stream(step).selectKey(key(f));
            case "flat_map": {
                final KeyValueMapper mapper = (k, v) -> {
                    final List<Object> found = new ArrayList<>();
                    chars(v).forEach(c -> found.add(KeyValue.pair(c, v)));
                    return found;
                };
                return isNamed ? stream(step).flatMap(mapper, named(step)) : stream(step).flatMap(mapper);
            }
            case "flat_map_values": {
                final org.apache.kafka.streams.kstream.ValueMapper mapper = DslRunner::chars;
                return isNamed ? stream(step).flatMapValues(mapper, named(step)) : stream(step).flatMapValues(mapper);
            }
            case "peek":
                return isNamed ? stream(step).peek((k, v) -> { }, named(step)) : stream(step).peek((k, v) -> { });
            case "process": {
                final ProcessorSupplier<Object, Object, Object, Object> supplier = AddPlace::new;
                return isNamed ? stream(step).process(supplier, named(step)) : stream(step).process(supplier);
            }
            case "process_values": {
                final FixedKeyProcessorSupplier<Object, Object, Object> supplier = AddPlaceToValue::new;
                return isNamed ? stream(step).processValues(supplier, named(step)) : stream(step).processValues(supplier);
            }
            case "foreach":
                if (isNamed) {
                    stream(step).foreach((k, v) -> { }, named(step));
                } else {
                    stream(step).foreach((k, v) -> { });
                }
                return null;
            case "merge":
                return isNamed ? stream(step).merge(in(step, "other"), named(step)) : stream(step).merge(in(step, "other"));
            case "split":
                return split(step);
            case "repartition": {
                Repartitioned<Object, Object> settings = Repartitioned.with(serde(step, "key"), serde(step, "value"));
                settings = isNamed ? settings.withName(text(step, "name")) : settings;
                settings = step.hasNonNull("partitions") ? settings.withNumberOfPartitions(step.get("partitions").asInt()) : settings;
                return stream(step).repartition(settings);
            }
            case "to": {
                Produced<Object, Object> produced = Produced.with(serde(step, "key"), serde(step, "value"));
                produced = isNamed ? produced.withName(text(step, "name")) : produced;
                stream(step).to(text(step, "topic"), produced);
                return null;
            }
            case "to_table":
                if (isStored) {
                    return isNamed ? stream(step).toTable(named(step), materialized(step.get("store")))
                        : stream(step).toTable(materialized(step.get("store")));
                }
                return isNamed ? stream(step).toTable(named(step)) : stream(step).toTable();
            case "to_stream":
                return toStream(step);
            case "group_by_key": {
                final Grouped<Object, Object> grouped = Grouped.with(text(step, "name"), serde(step, "key"), serde(step, "value"));
                return stream(step).groupByKey(grouped);
            }
            case "group_by": {
                final Grouped<Object, Object> grouped = Grouped.with(text(step, "name"), serde(step, "key"), serde(step, "value"));
                return outputs.get(text(step, "in")) instanceof KTable
                    ? table(step).groupBy(pair(f), (Grouped) grouped) : stream(step).groupBy(key(f), (Grouped) grouped);
            }
            case "count":
            case "reduce":
            case "aggregate":
                return DslAggregates.apply(outputs.get(text(step, "in")), step);
            case "windowed_count":
            case "windowed_reduce":
            case "windowed_aggregate":
                return DslWindows.apply(in(step, "in"), step);
            case "cogroup":
                return DslWindows.cogroup(in(step, "in"), step.hasNonNull("other") ? in(step, "other") : null, step);
            case "suppress":
                return table(step).suppress(suppressed(step));
            case "join_streams":
                return joinStreams(step);
            case "join_table":
            case "join_global":
            case "join_tables":
                return joinTables(step);
            default:
                throw new AssertionError(step);
        }
    }

    private KStream<Object, Object> stream(final JsonNode step) {
        return in(step, "in");
    }

    private KTable<Object, Object> table(final JsonNode step) {
        return in(step, "in");
    }

    private Object filter(final JsonNode step, final Object input, final boolean keeps) {
        final Predicate<Object, Object> predicate = predicate(text(step, "f"));
        final boolean isNamed = step.hasNonNull("name");
        if (input instanceof KStream) {
            final KStream<Object, Object> stream = (KStream) input;
            if (keeps) {
                return isNamed ? stream.filter(predicate, named(step)) : stream.filter(predicate);
            }
            return isNamed ? stream.filterNot(predicate, named(step)) : stream.filterNot(predicate);
        }
        final KTable<Object, Object> table = (KTable) input;
        if (step.hasNonNull("store")) {
            final Materialized settings = materialized(step.get("store"));
            if (keeps) {
                return isNamed ? table.filter(predicate, named(step), settings) : table.filter(predicate, settings);
            }
            return isNamed ? table.filterNot(predicate, named(step), settings) : table.filterNot(predicate, settings);
        }
        if (keeps) {
            return isNamed ? table.filter(predicate, named(step)) : table.filter(predicate);
        }
        return isNamed ? table.filterNot(predicate, named(step)) : table.filterNot(predicate);
    }

    private Object mapValues(final JsonNode step) {
        final ValueMapperWithKey<Object, Object, Object> mapper = value(text(step, "f"));
        final boolean isNamed = step.hasNonNull("name");
        if (outputs.get(text(step, "in")) instanceof KStream) {
            return isNamed ? stream(step).mapValues(mapper, named(step)) : stream(step).mapValues(mapper);
        }
        if (step.hasNonNull("store")) {
            final Materialized settings = materialized(step.get("store"));
            return isNamed ? table(step).mapValues(mapper, named(step), settings) : table(step).mapValues(mapper, settings);
        }
        return isNamed ? table(step).mapValues(mapper, named(step)) : table(step).mapValues(mapper);
    }

    private Object toStream(final JsonNode step) {
        final KTable<Object, Object> table = table(step);
        if (step.hasNonNull("f")) {
            return step.hasNonNull("name") ? table.toStream(key(text(step, "f")), named(step)) : table.toStream(key(text(step, "f")));
        }
        return step.hasNonNull("name") ? table.toStream(named(step)) : table.toStream();
    }

    private Object split(final JsonNode step) {
        BranchedKStream<Object, Object> branches = step.hasNonNull("name") ? stream(step).split(named(step)) : stream(step).split();
        for (final JsonNode branch : step.get("branches")) {
            branches = branch.hasNonNull("name")
                ? branches.branch(predicate(text(branch, "f")), Branched.as(text(branch, "name")))
                : branches.branch(predicate(text(branch, "f")));
        }
        final Map<String, KStream<Object, Object>> found = step.path("default").asBoolean()
            ? branches.defaultBranch() : branches.noDefaultBranch();
        final List<String> names = new ArrayList<>(new TreeMap<>(found).keySet());
        for (int i = 0; i < names.size(); i++) {
            outputs.put(text(step, "outs") + i, found.get(names.get(i)));
        }
        return null;
    }

    private Object joinStreams(final JsonNode step) {
        final ValueJoinerWithKey<Object, Object, Object, Object> joiner = (k, a, b) -> show(a) + "+" + show(b);
        final JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofMillis(step.get("grace").asLong()))
            .before(Duration.ofMillis(step.get("before").asLong())).after(Duration.ofMillis(step.get("after").asLong()));
        StreamJoined<Object, Object, Object> joined = StreamJoined.with(serde(step, "key"), serde(step, "value"), serde(step, "other_value"));
        joined = step.hasNonNull("name") ? joined.withName(text(step, "name")) : joined;
        joined = step.hasNonNull("base") ? joined.withStoreName(text(step, "base")) : joined;
        switch (text(step, "kind")) {
            case "left":
                return stream(step).leftJoin(this.<KStream<Object, Object>>in(step, "other"), joiner, windows, joined);
            case "outer":
                return stream(step).outerJoin(this.<KStream<Object, Object>>in(step, "other"), joiner, windows, joined);
            default:
                return stream(step).join(this.<KStream<Object, Object>>in(step, "other"), joiner, windows, joined);
        }
    }

    private static Suppressed suppressed(final JsonNode step) {
        final Suppressed result;
        if (step.hasNonNull("wait")) {
            Suppressed.EagerBufferConfig limits = Suppressed.BufferConfig.maxRecords(
                step.hasNonNull("records") ? step.get("records").asLong() : Long.MAX_VALUE);
            if (step.hasNonNull("bytes")) {
                limits = limits.withMaxBytes(step.get("bytes").asLong());
            }
            result = Suppressed.untilTimeLimit(Duration.ofMillis(step.get("wait").asLong()), limits);
        } else {
            result = Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded());
        }
        return step.hasNonNull("name") ? result.withName(text(step, "name")) : result;
    }

    private Object joinTables(final JsonNode step) {
        final ValueJoinerWithKey<Object, Object, Object, Object> joiner = (k, a, b) -> show(a) + "+" + show(b);
        final String kind = text(step, "kind");
        final String name = text(step, "name");
        if (text(step, "op").equals("join_table")) {
            Joined<Object, Object, Object> joined = Joined.with(serde(step, "key"), serde(step, "value"), null, name);
            joined = step.hasNonNull("grace") ? joined.withGracePeriod(Duration.ofMillis(step.get("grace").asLong())) : joined;
            return kind.equals("left") ? stream(step).leftJoin((KTable) in(step, "other"), joiner, joined)
                : stream(step).join((KTable) in(step, "other"), joiner, joined);
        }
        if (text(step, "op").equals("join_global")) {
            final GlobalKTable<Object, Object> other = in(step, "other");
            final KeyValueMapper<Object, Object, Object> mapper = key(text(step, "f"));
            if (name == null) {
                return kind.equals("left") ? stream(step).leftJoin(other, mapper, joiner) : stream(step).join(other, mapper, joiner);
            }
            return kind.equals("left") ? stream(step).leftJoin(other, mapper, joiner, named(step))
                : stream(step).join(other, mapper, joiner, named(step));
        }
        final org.apache.kafka.streams.kstream.ValueJoiner<Object, Object, Object> plain = (a, b) -> show(a) + "+" + show(b);
        final KTable<Object, Object> other = in(step, "other");
        final Named chosen = name == null ? null : named(step);
        if (step.hasNonNull("store")) {
            final Materialized settings = materialized(step.get("store"));
            switch (kind) {
                case "left":
                    return chosen == null ? table(step).leftJoin(other, plain, settings) : table(step).leftJoin(other, plain, chosen, settings);
                case "outer":
                    return chosen == null ? table(step).outerJoin(other, plain, settings) : table(step).outerJoin(other, plain, chosen, settings);
                default:
                    return chosen == null ? table(step).join(other, plain, settings) : table(step).join(other, plain, chosen, settings);
            }
        }
        switch (kind) {
            case "left":
                return chosen == null ? table(step).leftJoin(other, plain) : table(step).leftJoin(other, plain, chosen);
            case "outer":
                return chosen == null ? table(step).outerJoin(other, plain) : table(step).outerJoin(other, plain, chosen);
            default:
                return chosen == null ? table(step).join(other, plain) : table(step).join(other, plain, chosen);
        }
    }

    private static List<String> texts(final JsonNode step, final String name) {
        final List<String> found = new ArrayList<>();
        step.get(name).forEach(one -> found.add(one.asText()));
        return found;
    }

    // ---- functions ----

    static String show(final Object value) {
        if (value instanceof Windowed) {
            final Windowed<?> windowed = (Windowed<?>) value;
            return windowed.key() + "[" + windowed.window().start() + "," + windowed.window().end() + "]";
        }
        return String.valueOf(value);
    }

    private static int length(final Object value) {
        return value == null ? 0 : show(value).length();
    }

    private static List<String> chars(final Object value) {
        final List<String> found = new ArrayList<>();
        for (int i = 0; i < length(value); i++) {
            found.add(show(value).substring(i, i + 1));
        }
        return found;
    }

    private static Predicate<Object, Object> predicate(final String f) {
        return f.equals("odd") ? (k, v) -> (length(k) + length(v)) % 2 == 1 : (k, v) -> show(v).contains("a");
    }

    private static ValueMapperWithKey<Object, Object, Object> value(final String f) {
        switch (f) {
            case "x":
                return (k, v) -> v == null ? null : show(v) + "x";
            case "key":
                return (k, v) -> show(k) + "/" + show(v);
            default:
                return (k, v) -> length(v) % 3 == 0 ? null : show(v);
        }
    }

    private static KeyValueMapper key(final String f) {
        switch (f) {
            case "first":
                return (k, v) -> length(v) == 0 ? null : show(v).substring(0, 1);
            case "text":
                return (k, v) -> k == null ? null : show(k);
            default:
                return (k, v) -> "c";
        }
    }

    private static KeyValueMapper pair(final String f) {
        if (f.equals("swap")) {
            return (k, v) -> KeyValue.pair(v == null ? null : show(v), k == null ? null : show(k));
        }
        return (k, v) -> KeyValue.pair(length(v) == 0 ? null : show(v).substring(0, 1), v == null ? null : show(v));
    }

    /** The aggregations by window, and those of several streams. */
    private static String addPlace(final Object value, final Optional<RecordMetadata> metadata) {
        return value == null ? null
            : show(value) + "@" + metadata.map(m -> m.topic() + "-" + m.partition() + "-" + m.offset()).orElse("none");
    }

    /** Adds the place of the source record to values. */
    private static final class AddPlace extends ContextualProcessor<Object, Object, Object, Object> {
        @Override
        public void process(final Record<Object, Object> record) {
            context().forward(record.withValue(addPlace(record.value(), context().recordMetadata())));
        }
    }

    private static final class AddPlaceToValue extends ContextualFixedKeyProcessor<Object, Object, Object> {
        @Override
        public void process(final FixedKeyRecord<Object, Object> record) {
            context().forward(record.withValue(addPlace(record.value(), context().recordMetadata())));
        }
    }

    private static final class DslWindows {
        static Object apply(final KGroupedStream<Object, Object> grouped, final JsonNode step) {
            final Named name = step.hasNonNull("name") ? named(step) : null;
            final Materialized settings = step.hasNonNull("store") ? materialized(step.get("store")) : null;
            final Object windows = windows(step.get("windows"));
            final String op = text(step, "op");
            final boolean onClose = step.path("on_close").asBoolean();
            if (windows instanceof SessionWindows) {
                final SessionWindowedKStream<Object, Object> windowed = onClose
                    ? grouped.windowedBy((SessionWindows) windows).emitStrategy(EmitStrategy.onWindowClose())
                    : grouped.windowedBy((SessionWindows) windows);
                return ofSessions(windowed, op, name, settings);
            }
            TimeWindowedKStream<Object, Object> windowed = windows instanceof TimeWindows
                ? grouped.windowedBy((TimeWindows) windows) : grouped.windowedBy((SlidingWindows) windows);
            windowed = onClose ? windowed.emitStrategy(EmitStrategy.onWindowClose()) : windowed;
            switch (op) {
                case "windowed_count":
                    if (settings != null) {
                        return name == null ? windowed.count(settings) : windowed.count(name, settings);
                    }
                    return name == null ? windowed.count() : windowed.count(name);
                case "windowed_reduce":
                    if (settings != null) {
                        return name == null ? windowed.reduce(DslAggregates::reduce, settings) : windowed.reduce(DslAggregates::reduce, name, settings);
                    }
                    return name == null ? windowed.reduce(DslAggregates::reduce) : windowed.reduce(DslAggregates::reduce, name);
                default:
                    if (settings != null) {
                        return name == null ? windowed.aggregate(() -> "", DslAggregates::aggregate, settings)
                            : windowed.aggregate(() -> "", DslAggregates::aggregate, name, settings);
                    }
                    return name == null ? windowed.aggregate(() -> "", DslAggregates::aggregate)
                        : windowed.aggregate(() -> "", DslAggregates::aggregate, name);
            }
        }

        private static Object ofSessions(
            final SessionWindowedKStream<Object, Object> windowed, final String op, final Named name, final Materialized settings
        ) {
            switch (op) {
                case "windowed_count":
                    if (settings != null) {
                        return name == null ? windowed.count(settings) : windowed.count(name, settings);
                    }
                    return name == null ? windowed.count() : windowed.count(name);
                case "windowed_reduce":
                    if (settings != null) {
                        return name == null ? windowed.reduce(DslAggregates::reduce, settings) : windowed.reduce(DslAggregates::reduce, name, settings);
                    }
                    return name == null ? windowed.reduce(DslAggregates::reduce) : windowed.reduce(DslAggregates::reduce, name);
                default:
                    if (settings != null) {
                        return name == null ? windowed.aggregate(() -> "", DslAggregates::aggregate, DslAggregates::merge, settings)
                            : windowed.aggregate(() -> "", DslAggregates::aggregate, DslAggregates::merge, name, settings);
                    }
                    return name == null ? windowed.aggregate(() -> "", DslAggregates::aggregate, DslAggregates::merge)
                        : windowed.aggregate(() -> "", DslAggregates::aggregate, DslAggregates::merge, name);
            }
        }

        static Object cogroup(final KGroupedStream<Object, Object> one, final KGroupedStream<Object, Object> other, final JsonNode step) {
            CogroupedKStream<Object, Object> cogrouped = one.cogroup(DslAggregates::aggregate);
            if (other != null) {
                cogrouped = cogrouped.cogroup(other, DslAggregates::other);
            }
            final Materialized settings = materialized(step.get("store"));
            final Named name = step.hasNonNull("name") ? named(step) : null;
            if (!step.hasNonNull("windows")) {
                return name == null ? cogrouped.aggregate(() -> "", settings) : cogrouped.aggregate(() -> "", name, settings);
            }
            final Object windows = windows(step.get("windows"));
            if (windows instanceof SessionWindows) {
                return name == null ? cogrouped.windowedBy((SessionWindows) windows).aggregate(() -> "", DslAggregates::merge, settings)
                    : cogrouped.windowedBy((SessionWindows) windows).aggregate(() -> "", DslAggregates::merge, name, settings);
            }
            final TimeWindowedCogroupedKStream<Object, Object> windowed = windows instanceof TimeWindows
                ? cogrouped.windowedBy((TimeWindows) windows) : cogrouped.windowedBy((SlidingWindows) windows);
            return name == null ? windowed.aggregate(() -> "", settings) : windowed.aggregate(() -> "", name, settings);
        }

        private static Object windows(final JsonNode node) {
            final Duration size = Duration.ofMillis(node.get("size").asLong());
            final Duration grace = Duration.ofMillis(node.get("grace").asLong());
            switch (text(node, "kind")) {
                case "session":
                    return SessionWindows.ofInactivityGapAndGrace(size, grace);
                case "sliding":
                    return SlidingWindows.ofTimeDifferenceAndGrace(size, grace);
                default:
                    return TimeWindows.ofSizeAndGrace(size, grace).advanceBy(Duration.ofMillis(node.get("advance").asLong()));
            }
        }
    }

    /** The aggregations. */
    private static final class DslAggregates {
        static Object apply(final Object input, final JsonNode step) {
            final Named name = step.hasNonNull("name") ? named(step) : null;
            final Materialized settings = step.hasNonNull("store") ? materialized(step.get("store")) : null;
            if (input instanceof KGroupedTable) {
                return ofTable((KGroupedTable) input, text(step, "op"), name, settings);
            }
            final KGroupedStream<Object, Object> grouped = (KGroupedStream) input;
            switch (text(step, "op")) {
                case "count":
                    if (settings != null) {
                        return name == null ? grouped.count(settings) : grouped.count(name, settings);
                    }
                    return name == null ? grouped.count() : grouped.count(name);
                case "reduce":
                    if (settings == null) {
                        return grouped.reduce(DslAggregates::reduce);
                    }
                    return name == null ? grouped.reduce(DslAggregates::reduce, settings) : grouped.reduce(DslAggregates::reduce, name, settings);
                default:
                    if (settings == null) {
                        return grouped.aggregate(() -> "", DslAggregates::aggregate);
                    }
                    return name == null ? grouped.aggregate(() -> "", DslAggregates::aggregate, settings)
                        : grouped.aggregate(() -> "", DslAggregates::aggregate, name, settings);
            }
        }

        private static Object ofTable(
            final KGroupedTable<Object, Object> grouped, final String op, final Named name, final Materialized settings
        ) {
            switch (op) {
                case "count":
                    if (settings != null) {
                        return name == null ? grouped.count(settings) : grouped.count(name, settings);
                    }
                    return name == null ? grouped.count() : grouped.count(name);
                case "reduce":
                    if (settings == null) {
                        return grouped.reduce(DslAggregates::reduce, DslAggregates::subtract);
                    }
                    return name == null ? grouped.reduce(DslAggregates::reduce, DslAggregates::subtract, settings)
                        : grouped.reduce(DslAggregates::reduce, DslAggregates::subtract, name, settings);
                default:
                    if (settings == null) {
                        return grouped.aggregate(() -> "", DslAggregates::aggregate, DslAggregates::remove);
                    }
                    return name == null ? grouped.aggregate(() -> "", DslAggregates::aggregate, DslAggregates::remove, settings)
                        : grouped.aggregate(() -> "", DslAggregates::aggregate, DslAggregates::remove, name, settings);
            }
        }

        static Object reduce(final Object a, final Object b) {
            return show(b).contains("d") ? null : cut(show(a) + "," + show(b));
        }

        static Object subtract(final Object a, final Object b) {
            return show(b).contains("e") ? null : cut(show(a) + "-" + show(b));
        }

        static Object aggregate(final Object key, final Object value, final Object total) {
            return show(value).contains("d") ? null : cut(show(total) + show(value));
        }

        static Object other(final Object key, final Object value, final Object total) {
            return cut(show(total) + "(" + show(value) + ")");
        }

        static Object merge(final Object key, final Object one, final Object other) {
            return cut(show(one) + "|" + show(other));
        }

        static Object remove(final Object key, final Object value, final Object total) {
            return cut(show(total) + "-" + show(value));
        }

        private static String cut(final String text) {
            return text.length() > 30 ? text.substring(text.length() - 30) : text;
        }
    }
}
