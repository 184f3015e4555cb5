import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Prints what Java's assignors give for random groups. Arguments: small groups, large groups, groups with racks. */
public final class Assignors {
    private static final Node NODE = new Node(0, "h", 1);
    private static final String[] RACKS = {"a", "b", "c", "d"};
    private static int number;
    private static Random racks; // null: nobody has one

    public static void main(String[] args) {
        Random random = new Random(2026);
        for (int i = 0; i < Integer.parseInt(args[0]); i++) group(random, 8, 5, 12);
        for (int i = 0; i < Integer.parseInt(args[1]); i++) group(random, 60, 12, 40);
        racks = new Random(2027);
        for (int i = args.length > 2 ? Integer.parseInt(args[2]) : 0; i > 0; i--) group(random, 8, 4, 10);
    }

    /** One group: a first plan by each assignor, and for the sticky ones a second after members came and went. */
    private static void group(Random random, int members, int topics, int partitions) {
        Map<String, Integer> counts = new TreeMap<>();
        for (int i = 1 + random.nextInt(topics); i > 0; i--) counts.put("t" + i, 1 + random.nextInt(partitions));
        boolean mixed = random.nextInt(3) == 0;
        int n = 1 + random.nextInt(members);
        Map<String, List<String>> wants = new TreeMap<>();
        for (int i = 0; i < n; i++) wants.put("m" + i, subscription(random, counts, mixed));
        number++;
        for (ConsumerPartitionAssignor a : List.of(new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor())) {
            Map<String, List<TopicPartition>> first = call(a, counts, wants, Map.of(), 1);
            if (!a.name().contains("sticky")) continue;
            Map<String, List<String>> later = new TreeMap<>(wants);
            Random again = new Random(number);
            later.remove("m" + again.nextInt(n));
            for (int i = again.nextInt(3); i > 0; i--) later.put("x" + i, subscription(again, counts, mixed));
            if (!later.isEmpty()) call(a, counts, later, first, 2);
        }
    }

    private static List<String> subscription(Random random, Map<String, Integer> counts, boolean mixed) {
        List<String> names = new ArrayList<>();
        for (String t : counts.keySet()) if (!mixed || random.nextInt(3) > 0) names.add(t);
        if (names.isEmpty()) names.add(counts.keySet().iterator().next());
        return names;
    }

    private static Map<String, List<TopicPartition>> call(ConsumerPartitionAssignor a, Map<String, Integer> counts,
            Map<String, List<String>> wants, Map<String, List<TopicPartition>> owned, int round) {
        List<PartitionInfo> infos = new ArrayList<>();
        Node[] nodes = {NODE};
        Node[] brokers = new Node[RACKS.length];
        for (int i = 0; i < brokers.length; i++) brokers[i] = new Node(i, "h", 1, RACKS[i]);
        Random where = racks == null ? null : new Random(number);
        StringBuilder replicas = new StringBuilder();
        counts.forEach((t, c) -> {
            replicas.append(replicas.length() > 0 ? "," : "").append('"').append(t).append("\":[");
            for (int p = 0; p < c; p++) {
                List<String> in = new ArrayList<>();
                Node[] at = where == null ? nodes : replicas(where, brokers, in);
                infos.add(new PartitionInfo(t, p, at[0], at, at));
                replicas.append(p > 0 ? "," : "").append(strings(in));
            }
            replicas.append(']');
        });
        Map<String, Subscription> subs = new HashMap<>();
        StringBuilder members = new StringBuilder();
        wants.forEach((id, topics) -> {
            List<TopicPartition> own = owned.getOrDefault(id, List.of());
            Optional<String> rack = racks == null || id.hashCode() % 5 == number % 5 ? Optional.empty() : Optional.of(RACKS[(id.hashCode() + number) % 3]);
            subs.put(id, new Subscription(topics, null, own, owned.containsKey(id) ? 5 : -1, rack));
            members.append(members.length() > 0 ? "," : "").append('"').append(id).append("\":{\"topics\":").append(strings(topics));
            if (!own.isEmpty()) members.append(",\"owned\":").append(names(own));
            rack.ifPresent(r -> members.append(",\"rack\":\"").append(r).append('"'));
            if (owned.containsKey(id)) members.append(",\"generation\":5");
            members.append('}');
        });
        Map<String, List<TopicPartition>> result = new TreeMap<>();
        a.assign(new Cluster("c", Arrays.asList(where == null ? nodes : brokers), infos, Set.of(), Set.of()), new GroupSubscription(subs))
            .groupAssignment().forEach((id, as) -> result.put(id, as.partitions()));
        StringBuilder line = new StringBuilder("{\"assignor\":\"" + a.name() + "\",\"case\":" + number + ",\"round\":" + round + ",\"topics\":{");
        StringBuilder topics = new StringBuilder();
        counts.forEach((t, c) -> topics.append(topics.length() > 0 ? "," : "").append('"').append(t).append("\":").append(c));
        StringBuilder plans = new StringBuilder();
        result.forEach((id, tps) -> plans.append(plans.length() > 0 ? "," : "").append('"').append(id).append("\":").append(names(tps)));
        if (where != null) topics.append("},\"racks\":{").append(replicas);
        System.out.println(line.append(topics).append("},\"members\":{").append(members).append("},\"result\":{").append(plans).append("}}"));
        return result;
    }

    /** Brokers that hold a partition, one to three, and their racks. */
    private static Node[] replicas(Random random, Node[] brokers, List<String> racks) {
        Node[] nodes = new Node[1 + random.nextInt(3)];
        int first = random.nextInt(RACKS.length);
        for (int i = 0; i < nodes.length; i++) {
            nodes[i] = brokers[(first + i) % brokers.length];
            racks.add(nodes[i].rack());
        }
        return nodes;
    }

    private static String strings(List<String> list) {
        return list.isEmpty() ? "[]" : "[\"" + String.join("\",\"", list) + "\"]";
    }

    private static String names(List<TopicPartition> tps) {
        List<String> names = new ArrayList<>();
        for (TopicPartition tp : tps) names.add(tp.topic() + "/" + tp.partition());
        names.sort(null);
        return strings(names);
    }
}
