// Prints what RocketMQ's own strategies return, as JSON. make_vectors.py compiles and runs it.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.function.Function;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

public class Vectors {
    private static final List<String> LINES = new ArrayList<>();

    public static void main(String[] arguments) {
        AllocateMessageQueueStrategy average = new AllocateMessageQueueAveragely();
        AllocateMessageQueueStrategy circle = new AllocateMessageQueueAveragelyByCircle();
        for (int members = 1; members <= 7; members++) {
            for (int queues : new int[] {1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 16}) {
                show("average", "", average, queues("topic", "broker", queues), members("m", members));
                show("by_circle", "", circle, queues("topic", "broker", queues), members("m", members));
            }
        }
        hashes();
        rooms();
        nearby(average, "average");
        nearby(circle, "by_circle");
        nearby(new AllocateMessageQueueConsistentHash(), "consistent_hash");
        System.out.println(String.join(",\n", LINES));
    }

    private static void hashes() {
        for (int points : new int[] {1, 3, 10, 160}) {
            for (int members : new int[] {1, 2, 3, 5, 9}) {
                hash(points, queues("topic", "broker", 16), members("client-", members));
            }
        }
        hash(3, queues("topic_test", "brokerName", 20), members("CID-", 10));
        hash(3, queues("topic_test", "brokerName", 10), members("CID-", 20));
        hash(10, queues("Bestellungen ä", "Лондон", 12), Arrays.asList("größe", "東京", "emoji 🙂", " "));
        hash(10, queues("orders", "b", 12), Arrays.asList("10.0.0.7@4711", "10.0.0.7@4712", "10.0.0.8@1"));
        hash(10, queues("orders", "b", 12), Arrays.asList("10.0.0.8@1", "10.0.0.7@4712", "10.0.0.7@4711"));
        // The first points of these two members have one place, so the later of the two has it.
        hash(1, queues("topic", "broker", 4), Arrays.asList("m14901", "m63437"));
        hash(1, queues("topic", "broker", 4), Arrays.asList("m63437", "m14901"));
        // The queue and the first point of the member have one place.
        List<MessageQueue> met = Arrays.asList(
            new MessageQueue("topic", "broker", 41389), new MessageQueue("topic", "broker", 79787));
        hash(1, met, Arrays.asList("m13935", "m41383", "m0", "m1", "m2", "m3"));
    }

    private static void hash(int points, List<MessageQueue> queues, List<String> members) {
        show("consistent_hash", "\"virtual_nodes\": " + points + ", ",
            new AllocateMessageQueueConsistentHash(points), queues, members);
    }

    private static void rooms() {
        String[][] choices = {{"room1"}, {"room2"}, {"room1", "room3"}, {"none"}, {"room1", "room2", "room3"}, {""}};
        for (String[] choice : choices) {
            AllocateMessageQueueByMachineRoom strategy = new AllocateMessageQueueByMachineRoom();
            strategy.setConsumeridcs(new HashSet<>(Arrays.asList(choice)));
            List<MessageQueue> queues = new ArrayList<>();
            for (String broker : new String[] {
                "room1@a", "room2@b", "room3@c", "room1", "room1@a@b", "@room1", "room1@", "room1@d@"}) {
                queues.addAll(queues("topic", broker, 4));
            }
            for (int members : new int[] {1, 2, 3, 5, 20}) {
                show("by_room", "\"rooms\": " + list(Arrays.asList(choice), Vectors::text) + ", ",
                    strategy, queues, members("m", members));
            }
        }
    }

    private static void nearby(AllocateMessageQueueStrategy inner, String name) {
        AllocateMachineRoomNearby strategy = new AllocateMachineRoomNearby(inner,
            new AllocateMachineRoomNearby.MachineRoomResolver() {
                public String brokerDeployIn(MessageQueue queue) {
                    return queue.getBrokerName().split("-")[0];
                }

                public String consumerDeployIn(String member) {
                    return member.split("-")[0];
                }
            });
        // {rooms with queues, first of them, rooms with members, first of them, members of each room}
        int[][] choices = {{3, 1, 3, 1, 2}, {3, 1, 1, 1, 3}, {4, 1, 2, 2, 2}, {2, 1, 4, 1, 1}, {2, 1, 2, 3, 2}, {3, 1, 1, 2, 1}};
        for (int[] choice : choices) {
            List<MessageQueue> queues = new ArrayList<>();
            for (int room = choice[0] + choice[1] - 1; room >= choice[1]; room--) {
                queues.addAll(queues("topic_test", "IDC" + room + "-broker", 5));
            }
            List<String> members = new ArrayList<>();
            for (int room = choice[3]; room < choice[2] + choice[3]; room++) {
                members.addAll(members("IDC" + room + "-CID-", choice[4]));
            }
            show("nearby", "\"inner\": " + text(name) + ", ", strategy, queues, members);
        }
    }

    private static List<MessageQueue> queues(String topic, String broker, int count) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            queues.add(new MessageQueue(topic, broker, number));
        }
        return queues;
    }

    private static List<String> members(String prefix, int count) {
        List<String> members = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            members.add(prefix + number);
        }
        return members;
    }

    // Queues are printed as runs of topic, broker and numbers. A share has indexes of queues.
    private static void show(String name, String more, AllocateMessageQueueStrategy strategy,
        List<MessageQueue> queues, List<String> members) {
        List<List<MessageQueue>> shares = new ArrayList<>();
        for (String member : members) {
            shares.add(strategy.allocate("group", member, queues, members));
        }
        LINES.add("{\"strategy\": " + text(name) + ", " + more
            + "\"queues\": " + runs(queues)
            + ", \"members\": " + list(members, Vectors::text)
            + ", \"shares\": " + list(shares, share -> list(share, queue -> "" + queues.indexOf(queue))) + "}");
    }

    private static String runs(List<MessageQueue> queues) {
        List<String> runs = new ArrayList<>();
        List<Integer> numbers = new ArrayList<>();
        for (int index = 0; index < queues.size(); index++) {
            MessageQueue queue = queues.get(index);
            numbers.add(queue.getQueueId());
            boolean last = index + 1 == queues.size();
            if (last || !queues.get(index + 1).getBrokerName().equals(queue.getBrokerName())) {
                runs.add("[" + text(queue.getTopic()) + ", " + text(queue.getBrokerName()) + ", " + numbers + "]");
                numbers.clear();
            }
        }
        return "[" + String.join(", ", runs) + "]";
    }

    private static <T> String list(List<T> values, Function<T, String> shown) {
        List<String> parts = new ArrayList<>();
        for (T value : values) {
            parts.add(shown.apply(value));
        }
        return "[" + String.join(", ", parts) + "]";
    }

    private static String text(String value) {
        return '"' + value + '"';
    }
}
