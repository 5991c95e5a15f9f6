// A process that locks with Curator on command: one line in, one line out. See xtask/src/interop/peer.rs.
//
// Arguments: the servers, and how long its session lasts, in milliseconds. The lease of `lock` is that session.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;

public final class Peer {
    private final CuratorFramework client;
    private final Map<String, InterProcessMutex> held = new HashMap<>();

    private Peer(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                args[0], Integer.parseInt(args[1]), 5000, new RetryNTimes(5, 100));
        client.start();
        client.blockUntilConnected();
        Peer peer = new Peer(client);
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(peer.obey(line.split(" ")));
        }
        client.close();
    }

    private static String path(String name) {
        return "/lockline/" + name;
    }

    private String obey(String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "lock":
                return take(new InterProcessMutex(client, path(name)), name, words[3]);
            case "read":
                return take(new InterProcessReadWriteLock(client, path(name)).readLock(), name, words[2]);
            case "write":
                return take(new InterProcessReadWriteLock(client, path(name)).writeLock(), name, words[2]);
            case "unlock":
                held.remove(name).release();
                return "free";
            case "spin":
                return spin(name, Long.parseLong(words[2]), Path.of(words[3]));
            default:
                return "unknown";
        }
    }

    private String take(InterProcessMutex mutex, String name, String waitMs) throws Exception {
        if (!mutex.acquire(Long.parseLong(waitMs), TimeUnit.MILLISECONDS)) {
            return "busy";
        }
        held.put(name, mutex);
        return "held";
    }

    private String spin(String name, long forMs, Path witness) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path(name));
        int turns = 0;
        int violations = 0;
        for (long until = System.nanoTime() + forMs * 1_000_000L; System.nanoTime() < until;) {
            mutex.acquire();
            try {
                Files.createFile(witness);
            } catch (FileAlreadyExistsException e) {
                violations++;
            }
            turns++;
            Files.delete(witness);
            mutex.release();
        }
        return turns + " " + violations;
    }
}
