import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.params.XAddParams;

/**
 * Debezium's engine with its EventRouter, from the table outbox into a stream of Redis:
 * `Engine DATABASE_URL REDIS_URL STREAM POLL_MS`. It ends with its input.
 */
public class Engine {
    public static void main(String[] words) throws Exception {
        URI database = URI.create(words[0]);
        Jedis jedis = new Jedis(URI.create(words[1]));
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties(database, words[3]))
            .notifying((events, committer) -> {
                send(jedis, words[2], events);
                for (ChangeEvent<String, String> event : events) {
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            })
            .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        System.out.println("running");
        while (System.in.read() >= 0) {
        }
        engine.close();
        System.exit(0);
    }

    private static void send(Jedis jedis, String stream, List<ChangeEvent<String, String>> events) {
        try (Pipeline pipeline = jedis.pipelined()) {
            for (ChangeEvent<String, String> event : events) {
                Map<String, String> fields =
                    Map.of("k", String.valueOf(event.key()), "v", String.valueOf(event.value()));
                pipeline.xadd(stream, fields, XAddParams.xAddParams());
            }
            pipeline.sync();
        }
    }

    private static Properties properties(URI database, String poll) throws IOException {
        Properties all = new Properties();
        all.putAll(Map.ofEntries(
            Map.entry("name", "bench"),
            Map.entry("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            Map.entry("offset.storage",
                "org.apache.kafka.connect.storage.FileOffsetBackingStore"),
            Map.entry("offset.storage.file.filename",
                Files.createTempDirectory("debezium").resolve("offsets").toString()),
            Map.entry("offset.flush.interval.ms", "1000"),
            Map.entry("database.hostname", database.getHost()),
            Map.entry("database.port", String.valueOf(database.getPort())),
            Map.entry("database.user", database.getUserInfo()),
            Map.entry("database.password", "none"),
            Map.entry("database.dbname", database.getPath().substring(1)),
            Map.entry("topic.prefix", "bench"),
            Map.entry("plugin.name", "pgoutput"),
            Map.entry("slot.name", "debezium"),
            Map.entry("publication.name", "debezium"),
            Map.entry("publication.autocreate.mode", "disabled"),
            Map.entry("table.include.list", "public.outbox"),
            Map.entry("snapshot.mode", "no_data"),
            Map.entry("tombstones.on.delete", "false"),
            Map.entry("transforms", "outbox"),
            Map.entry("transforms.outbox.type",
                "io.debezium.transforms.outbox.EventRouter"),
            Map.entry("transforms.outbox.table.field.event.payload", "payload"),
            Map.entry("poll.interval.ms", poll),
            Map.entry("max.batch.size", "2048"),
            Map.entry("converter.schemas.enable", "false")));
        return all;
    }
}
