package kedge;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** {@code kedge cluster-run}: nodes n_0, n_1 and so on, on free ports, with one data directory for all. */
final class KedgeCluster implements AutoCloseable {
  private static final int LIMIT_SECONDS = 60;
  private static final Pattern NODE =
      Pattern.compile("ready kv=\\S+:(\\d+) mgmt=\\S+:(\\d+) .*node=n_(\\d+) pid=(\\d+)");

  private record Node(long pid, String kv, String mgmt) {}

  private final Path directory;
  private final Process process;
  private final List<Node> nodes;

  KedgeCluster(int count, int replicas) {
    try {
      directory = Files.createTempDirectory("kedge-test-");
      process =
          new ProcessBuilder(
                  KedgeServer.binary().toString(), "cluster-run",
                  "--nodes", Integer.toString(count),
                  "--replicas", Integer.toString(replicas),
                  "--data-dir", directory.resolve("data").toString(),
                  "--kv-port", "0",
                  "--mgmt-port", "0",
                  "--vbuckets", "64",
                  "--bucket", KedgeServer.BUCKET,
                  "--user", KedgeServer.USER,
                  "--password", KedgeServer.PASSWORD)
              .redirectError(directory.resolve("stderr").toFile())
              .start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    Runtime.getRuntime().addShutdownHook(new Thread(this::close));
    try {
      nodes =
          CompletableFuture.supplyAsync(this::ready).get(LIMIT_SECONDS, TimeUnit.SECONDS);
    } catch (Exception e) {
      close();
      throw new IllegalStateException("the cluster did not become ready", e);
    }
  }

  private List<Node> ready() {
    var stdout =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    SortedMap<Integer, Node> found = new TreeMap<>();
    try {
      for (String line = stdout.readLine(); line != null; line = stdout.readLine()) {
        if (line.startsWith("cluster ready ")) {
          return List.copyOf(found.values());
        }
        Matcher match = NODE.matcher(line);
        if (match.matches()) {
          var node = new Node(Long.parseLong(match.group(4)), match.group(1), match.group(2));
          found.put(Integer.parseInt(match.group(3)), node);
        }
      }
      throw new IllegalStateException(Files.readString(directory.resolve("stderr")));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  String connectionString() {
    return nodes.stream()
        .map(node -> "127.0.0.1:" + node.kv)
        .collect(Collectors.joining(",", "couchbase://", ""));
  }

  /** Kills a node and promotes its replicas; asks the first one. */
  void failOver(int node) throws IOException, InterruptedException {
    ProcessHandle.of(nodes.get(node).pid).orElseThrow().destroyForcibly();
    Process command =
        new ProcessBuilder(
                KedgeServer.binary().toString(), "cluster", "failover", "n_" + node,
                "-U", "http://127.0.0.1:" + nodes.get(0).mgmt,
                "-u", KedgeServer.USER,
                "-P", KedgeServer.PASSWORD)
            .redirectErrorStream(true)
            .start();
    String said = new String(command.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (command.waitFor() != 0) {
      throw new IllegalStateException(said);
    }
  }

  /** Ends all nodes and removes their data. */
  @Override
  public void close() {
    process.destroy();
    try {
      process.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    KedgeServer.remove(directory);
  }
}
