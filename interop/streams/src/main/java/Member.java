import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A member in Java: joins the streams x and y and counts by value. Arguments are settings, name=value; x, y, z
 * are the topics. Prints "active" and the tasks whenever they change. SIGTERM has it leave and print "left".
 */
public class Member {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        for (String a : args) {
            String[] kv = a.split("=", 2);
            p.put(kv[0], kv[1]);
        }
        p.put("group.protocol", "streams");
        KafkaStreams streams = new KafkaStreams(topology(p).build(), p);
        streams.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
            System.out.println("left");
        }));
        String last = "";
        while (streams.state() != KafkaStreams.State.ERROR) {
            TreeSet<String> tasks = new TreeSet<>();
            streams.metadataForLocalThreads().forEach(t -> t.activeTasks().forEach(a -> tasks.add(a.taskId().toString())));
            String line = "active " + String.join(" ", tasks);
            if (streams.state() == KafkaStreams.State.RUNNING && !line.equals(last)) {
                System.out.println(line);
                last = line;
            }
            Thread.sleep(50);
        }
        System.exit(1);
    }

    static StreamsBuilder topology(Properties p) {
        Serde<String> s = Serdes.String();
        StreamsBuilder b = new StreamsBuilder();
        b.stream(p.getProperty("x"), Consumed.with(s, s))
            .join(b.table(p.getProperty("y"), Consumed.with(s, s), Materialized.as(Stores.inMemoryKeyValueStore("table"))), (l, r) -> l + r)
            .groupBy((k, v) -> v, Grouped.with("counts", s, s))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(s))
            .toStream().mapValues(v -> "" + v).to(p.getProperty("z"), Produced.with(s, s));
        return b;
    }
}
