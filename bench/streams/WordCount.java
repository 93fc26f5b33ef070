import java.util.Arrays;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of lines with Kafka Streams, with caches and a repartition topic.
 *
 * <p>Arguments: brokers, input topic, output topic, application id, state directory, and commit interval in
 * milliseconds. It runs until it is killed.
 */
public final class WordCount {
    private WordCount() {
    }

    public static void main(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.toLowerCase().split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(arguments[2], Produced.with(Serdes.String(), Serdes.Long()));
        CountPerKey.start(builder, arguments);
    }
}
