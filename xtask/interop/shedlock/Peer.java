// A process that locks with ShedLock on command: one line in, one line out. See xtask/src/interop/peer.rs.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TimeZone;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;

public final class Peer {
    private final LockProvider provider;
    private final Map<String, SimpleLock> held = new HashMap<>();

    private Peer(LockProvider provider) {
        this.provider = provider;
    }

    // The address of the database, the user, the file that makes the table, and whose clock is used: "database" or "own".
    public static void main(String[] args) throws Throwable {
        JdbcTemplate database = new JdbcTemplate(new SingleConnectionDataSource(args[0], args[1], "", true));
        database.execute(Files.readString(Path.of(args[2])));
        JdbcTemplateLockProvider.Configuration.Builder settings =
                JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(database);
        // As the documents have it: one of the two, never both.
        settings = args[3].equals("database")
                ? settings.usingDbTime()
                : settings.withTimeZone(TimeZone.getTimeZone("UTC"));
        Peer peer = new Peer(new JdbcTemplateLockProvider(settings.build()));
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(peer.obey(line.split(" ")));
        }
    }

    private static Duration millis(String word) {
        return Duration.ofMillis(Long.parseLong(word));
    }

    private static LockConfiguration hold(String name, Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), name, atMost, atLeast);
    }

    // ShedLock itself never waits: a task that finds its lock taken is skipped.
    private Optional<SimpleLock> lock(String name, Duration atMost, Duration atLeast, Duration wait) throws InterruptedException {
        long until = System.nanoTime() + wait.toNanos();
        Optional<SimpleLock> lock = provider.lock(hold(name, atMost, atLeast));
        while (lock.isEmpty() && System.nanoTime() < until) {
            Thread.sleep(5);
            lock = provider.lock(hold(name, atMost, atLeast));
        }
        return lock;
    }

    private String obey(String[] words) throws Throwable {
        String name = words[1];
        switch (words[0]) {
            case "lock": {
                Duration atLeast = words.length > 4 ? millis(words[4]) : Duration.ZERO;
                Optional<SimpleLock> lock = lock(name, millis(words[2]), atLeast, millis(words[3]));
                lock.ifPresent(got -> held.put(name, got));
                return lock.isPresent() ? "held" : "busy";
            }
            case "unlock": {
                SimpleLock lock = held.remove(name);
                if (lock == null) {
                    return "lost";
                }
                lock.unlock();
                return "free";
            }
            case "extend": {
                Optional<SimpleLock> longer = held.remove(name).extend(millis(words[2]), Duration.ZERO);
                longer.ifPresent(got -> held.put(name, got));
                return longer.isPresent() ? "held" : "lost";
            }
            // As a scheduled method does it.
            case "task": {
                DefaultLockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
                LockConfiguration settings = hold(name, millis(words[2]), Duration.ZERO);
                return executor.executeWithLock(() -> "done", settings).wasExecuted() ? "ran" : "skipped";
            }
            case "spin": {
                Path witness = Path.of(words[3]);
                int turns = 0;
                int violations = 0;
                for (long until = System.nanoTime() + Long.parseLong(words[2]) * 1_000_000L; System.nanoTime() < until;) {
                    SimpleLock lock = lock(name, Duration.ofSeconds(30), Duration.ZERO, Duration.ofSeconds(30)).orElseThrow();
                    try {
                        Files.createFile(witness);
                    } catch (FileAlreadyExistsException e) {
                        violations++;
                    }
                    turns++;
                    Files.delete(witness);
                    lock.unlock();
                }
                return turns + " " + violations;
            }
            default:
                return "unknown";
        }
    }
}
