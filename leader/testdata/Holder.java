import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer of the Java client that holds a transactional id and does what it
 * is told on stdin: "commit VALUE" and "abort VALUE" are a transaction each, which
 * is aborted where it fails. Each answer is one line.
 */
public class Holder {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("transactional.id", args[1]);
        p.put("transaction.timeout.ms", "60000");
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
            producer.initTransactions();
            System.out.println("ready");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                System.out.println(transaction(producer, args[2], words[0].equals("commit"), words[1]));
            }
        }
    }

    static String transaction(KafkaProducer<String, String> producer, String topic, boolean commit, String value) {
        try {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, value)).get();
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            return "done";
        } catch (Exception e) {
            try {
                producer.abortTransaction();
                return "aborted after " + e;
            } catch (Exception f) {
                return "failed with " + e + ", and its abort with " + f;
            }
        }
    }
}
