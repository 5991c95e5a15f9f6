// A process that locks with Redisson on command: one line in, one line out. See xtask/src/interop/peer.rs.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public final class Peer {
    private final RedissonClient redisson;

    private Peer(RedissonClient redisson) {
        this.redisson = redisson;
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]);
        // The watchdog's lease: short, so that its renewals are seen.
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        Peer peer = new Peer(Redisson.create(config));
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(peer.obey(line.split(" ")));
        }
        peer.redisson.shutdown();
    }

    private static String unlock(RLock lock) {
        try {
            lock.unlock();
            return "free";
        } catch (IllegalMonitorStateException e) {
            return "lost";
        }
    }

    private String obey(String[] words) throws IOException, InterruptedException {
        String name = words[1];
        switch (words[0]) {
            case "lock": {
                // A lease of 0 is none: the watchdog keeps it.
                long lease = Long.parseLong(words[2]);
                long wait = Long.parseLong(words[3]);
                RLock lock = redisson.getLock(name);
                return lock.tryLock(wait, lease == 0 ? -1 : lease, TimeUnit.MILLISECONDS) ? "held" : "busy";
            }
            case "fenced": {
                RFencedLock lock = redisson.getFencedLock(name);
                Long token = lock.tryLockAndGetToken(
                        Long.parseLong(words[3]), Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
                return token == null ? "busy" : token.toString();
            }
            case "fair": {
                RLock lock = redisson.getFairLock(name);
                return lock.tryLock(Long.parseLong(words[3]), Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
                        ? "held" : "busy";
            }
            case "unlock":
                return unlock(redisson.getLock(name));
            case "unlock-fair":
                return unlock(redisson.getFairLock(name));
            case "spin": {
                RLock lock = redisson.getLock(name);
                Path witness = Path.of(words[3]);
                int turns = 0;
                int violations = 0;
                for (long until = System.nanoTime() + Long.parseLong(words[2]) * 1_000_000L; System.nanoTime() < until;) {
                    lock.lock(30, TimeUnit.SECONDS);
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
            case "count":
                return Integer.toString(redisson.getLock(name).getHoldCount());
            case "locked":
                return Boolean.toString(redisson.getLock(name).isLocked());
            default:
                return "unknown";
        }
    }
}
