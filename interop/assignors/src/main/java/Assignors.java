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

/** Prints what Java's assignors give for random groups. Arguments: small groups, large groups. */
public final class Assignors {
    private static final Node NODE = new Node(0, "h", 1);
    private static int number;

    public static void main(String[] args) {
        Random random = new Random(2026);
        for (int i = 0; i < Integer.parseInt(args[0]); i++) group(random, 8, 5, 12);
        for (int i = 0; i < Integer.parseInt(args[1]); i++) group(random, 60, 12, 40);
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
        counts.forEach((t, c) -> { for (int p = 0; p < c; p++) infos.add(new PartitionInfo(t, p, NODE, nodes, nodes)); });
        Map<String, Subscription> subs = new HashMap<>();
        StringBuilder members = new StringBuilder();
        wants.forEach((id, topics) -> {
            List<TopicPartition> own = owned.getOrDefault(id, List.of());
            subs.put(id, new Subscription(topics, null, own, owned.containsKey(id) ? 5 : -1, Optional.empty()));
            members.append(members.length() > 0 ? "," : "").append('"').append(id).append("\":{\"topics\":").append(strings(topics));
            if (!own.isEmpty()) members.append(",\"owned\":").append(names(own));
            if (owned.containsKey(id)) members.append(",\"generation\":5");
            members.append('}');
        });
        Map<String, List<TopicPartition>> result = new TreeMap<>();
        a.assign(new Cluster("c", Arrays.asList(nodes), infos, Set.of(), Set.of()), new GroupSubscription(subs))
            .groupAssignment().forEach((id, as) -> result.put(id, as.partitions()));
        StringBuilder line = new StringBuilder("{\"assignor\":\"" + a.name() + "\",\"case\":" + number + ",\"round\":" + round + ",\"topics\":{");
        StringBuilder topics = new StringBuilder();
        counts.forEach((t, c) -> topics.append(topics.length() > 0 ? "," : "").append('"').append(t).append("\":").append(c));
        StringBuilder plans = new StringBuilder();
        result.forEach((id, tps) -> plans.append(plans.length() > 0 ? "," : "").append('"').append(id).append("\":").append(names(tps)));
        System.out.println(line.append(topics).append("},\"members\":{").append(members).append("},\"result\":{").append(plans).append("}}"));
        return result;
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
