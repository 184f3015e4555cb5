import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescription;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescriptionPlugin;

/** A plug-in of brokers that keeps the descriptions of topologies in memory (KIP-1331). */
public class Descriptions implements StreamsGroupTopologyDescriptionPlugin {
    private final Map<String, StreamsGroupTopologyDescription> kept = new ConcurrentHashMap<>();

    public void configure(Map<String, ?> configs) { }

    public CompletableFuture<Void> setTopology(String group, int epoch, StreamsGroupTopologyDescription topology) {
        kept.put(group, topology);
        return CompletableFuture.completedFuture(null);
    }

    public CompletableFuture<Void> deleteTopology(String group) {
        kept.remove(group);
        return CompletableFuture.completedFuture(null);
    }

    public CompletableFuture<StreamsGroupTopologyDescription> getTopology(String group, int epoch) {
        return CompletableFuture.completedFuture(kept.get(group));
    }

    public void close() { }
}
