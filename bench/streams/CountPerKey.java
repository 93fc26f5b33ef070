import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts the records of each key with Kafka Streams, and writes each new count to a topic.
 *
 * <p>Arguments: brokers, input topic, output topic, application id, state directory, commit interval in milliseconds,
 * and {@code cached}, {@code uncached}, or {@code values} to keep the last value of each key instead of its count. It
 * runs until it is killed.
 */
public final class CountPerKey {
    private CountPerKey() {
    }

    public static void main(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<Bytes, Bytes> records =
            builder.stream(arguments[1], Consumed.with(Serdes.Bytes(), Serdes.Bytes())).groupByKey();
        KStream<Bytes, Long> output =
            arguments[6].equals("values") ? keepValues(records) : count(records, arguments[6].equals("cached"));
        output.to(arguments[2], Produced.with(Serdes.Bytes(), Serdes.Long()));
        start(builder, arguments);
    }

    private static KStream<Bytes, Long> count(KGroupedStream<Bytes, Bytes> records, boolean isCached) {
        Materialized<Bytes, Long, KeyValueStore<Bytes, byte[]>> store =
            Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.Bytes())
                .withValueSerde(Serdes.Long());
        return records.count(isCached ? store.withCachingEnabled() : store.withCachingDisabled()).toStream();
    }

    private static KStream<Bytes, Long> keepValues(KGroupedStream<Bytes, Bytes> records) {
        Materialized<Bytes, Bytes, KeyValueStore<Bytes, byte[]>> store =
            Materialized.<Bytes, Bytes, KeyValueStore<Bytes, byte[]>>as("values")
                .withKeySerde(Serdes.Bytes())
                .withValueSerde(Serdes.Bytes());
        return records.reduce((before, value) -> value, store.withCachingDisabled()).toStream().mapValues(value -> 1L);
    }

    /** Runs a topology with the first six arguments of the program. */
    static void start(StreamsBuilder builder, String[] arguments) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[5]);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
        streams.setStateListener((state, before) -> {
            if (state == KafkaStreams.State.ERROR || state == KafkaStreams.State.NOT_RUNNING) {
                System.exit(1);
            }
        });
        streams.start();
    }
}
