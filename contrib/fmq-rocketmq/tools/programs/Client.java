// An ordinary program of RocketMQ's own Java client: Client HOST:PORT all|die|heir
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

public class Client {
    static final String ME = "java", T = ME + "-";
    static final long MILLIS = 20_000;
    static final ClientServiceProvider S = ClientServiceProvider.loadService();
    static ClientConfiguration c;
    static final CompletableFuture<String> asked = new CompletableFuture<>();

    static void say(String scenario, Object seen) { System.out.println(scenario + "\t" + seen); }
    static String body(MessageView m) { return StandardCharsets.UTF_8.decode(m.getBody()).toString(); }
    static MessageBuilder message(String topic, String body, String tag, int amount) {
        return S.newMessageBuilder().setTopic(topic).setTag(tag).setKeys("k")
            .addProperty("amount", "" + amount).setBody(body.getBytes());
    }
    static String take(String topic, String group, int count, FilterExpression wanted) throws Exception {
        SimpleConsumer consumer = S.newSimpleConsumerBuilder().setClientConfiguration(c)
            .setConsumerGroup(T + group).setAwaitDuration(Duration.ofSeconds(6))
            .setSubscriptionExpressions(Map.of(topic, wanted)).build();
        List<String> found = new ArrayList<>();
        long end = System.currentTimeMillis() + MILLIS;
        boolean once = true;
        while ((found.size() < count && System.currentTimeMillis() < end) || once) {
            if (found.size() >= count) once = false;
            try {
                for (MessageView m : consumer.receive(16, Duration.ofSeconds(30))) {
                    found.add(body(m));
                    consumer.ack(m);
                }
            } catch (ClientException e) { // the server does not know the consumer yet
                Thread.sleep(200);
            }
            if (System.currentTimeMillis() >= end) break;
        }
        consumer.close();
        return String.join(",", found);
    }
    static String push(String topic, String group, int count) throws Exception {
        BlockingQueue<String> found = new LinkedBlockingQueue<>();
        PushConsumer consumer = S.newPushConsumerBuilder().setClientConfiguration(c)
            .setConsumerGroup(T + group).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(m -> { found.add(body(m)); return ConsumeResult.SUCCESS; }).build();
        List<String> out = new ArrayList<>();
        for (int i = 0; i < count; i++) out.add(found.poll(MILLIS, TimeUnit.MILLISECONDS));
        consumer.close();
        return String.join(",", out);
    }
    public static void main(String[] a) {
        try {
            run(a);
        } catch (Exception e) { // the threads of the client would keep the program alive
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }
    static void run(String[] a) throws Exception {
        c = ClientConfiguration.newBuilder().setEndpoints(a[0]).enableSsl(false).build();
        Producer p = S.newProducerBuilder().setClientConfiguration(c).setTopics(T + "tx")
            .setTransactionChecker(m -> { asked.complete(body(m)); return TransactionResolution.COMMIT; }).build();
        if (a[1].equals("die")) {
            p.send(message(T + "tx", "orphan", "t", 70).build(), p.beginTransaction());
            Runtime.getRuntime().halt(9);
        }
        if (a[1].equals("heir")) {
            say("asked about an orphan after kill -9", asked.get(MILLIS, TimeUnit.MILLISECONDS));
            say("the orphan is delivered", take(T + "tx", "heir", 1, FilterExpression.SUB_ALL));
            Runtime.getRuntime().halt(0);
        }
        for (int n = 0; n < 3; n++) p.send(message(T + "n", "n" + n, n > 0 ? "paid" : "open", n * 50).build());
        say("send, receive, ack", take(T + "n", "all", 3, FilterExpression.SUB_ALL));
        say("a filter by tag", take(T + "n", "tag", 2, new FilterExpression("paid")));
        say("a filter in SQL92", take(T + "n", "sql", 1, new FilterExpression("amount > 50", FilterExpressionType.SQL92)));
        for (String body : new String[] {"committed", "rolled back", "twice"}) {
            Transaction tx = p.beginTransaction();
            p.send(message(T + "tx2", body, "t", 70).build(), tx);
            if (body.startsWith("rolled")) { tx.rollback(); continue; }
            tx.commit();
            if (body.equals("twice")) {
                try { tx.commit(); say("the second commit", "accepted"); }
                catch (Exception e) { say("the second commit", e.getClass().getSimpleName()); }
                try { tx.rollback(); say("rollback after commit", "accepted"); }
                catch (Exception e) { say("rollback after commit", e.getClass().getSimpleName()); }
            }
        }
        say("transactions, one committed twice", take(T + "tx2", "tx", 2, FilterExpression.SUB_ALL));
        long later = System.currentTimeMillis() + 2000;
        p.send(message(T + "d", "delayed", "t", 70).setDeliveryTimestamp(later).build());
        SendReceipt sent = p.send(message(T + "d", "recalled", "t", 70).setDeliveryTimestamp(later).build());
        p.recallMessage(T + "d", sent.getRecallHandle());
        say("a delayed one, and one recalled", take(T + "d", "delay", 1, FilterExpression.SUB_ALL));
        for (int n = 0; n < 4; n++) p.send(message(T + "f", "f" + n, "t", 70).setMessageGroup("g").build());
        say("a message group in order", take(T + "f", "fifo", 4, FilterExpression.SUB_ALL));
        say("a push consumer, in order", push(T + "f", "push-fifo", 4));
        Runtime.getRuntime().halt(0);
    }
}
