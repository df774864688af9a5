package kedge;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A server with a data directory of its own; its ports stay the same when it is started again. */
final class KedgeServer implements AutoCloseable {
  static final String USER = "Administrator";
  static final String PASSWORD = "password";
  static final String BUCKET = "default";

  private static final int READY_SECONDS = 60;
  private static final int STOP_SECONDS = 60;
  private static final Pattern READY =
      Pattern.compile("ready kv=\\S+:(\\d+) mgmt=\\S+:(\\d+) memcached=\\S+:(\\d+)(?: kvs=\\S+:(\\d+))?.*");

  private final Path directory;
  private final List<String> flags;
  private String tlsPort;
  private List<String> ports = List.of("0", "0", "0");
  private Process process;

  KedgeServer(String... flags) {
    this.flags = List.of(flags);
    try {
      directory = Files.createTempDirectory("kedge-test-");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    Runtime.getRuntime().addShutdownHook(new Thread(this::close));
    start();
  }

  /** {@code target/release/kedge} of this repository unless KEDGE_BIN names another one. */
  static Path binary() {
    String named = System.getenv("KEDGE_BIN");
    Path path = named == null ? Path.of("../../../target/release/kedge") : Path.of(named);
    if (!Files.isExecutable(path)) {
      throw new IllegalStateException(
          path.toAbsolutePath().normalize()
              + " is missing: run `cargo build --release -p kedge`, or set KEDGE_BIN");
    }
    return path;
  }

  void start() {
    List<String> fixed =
        List.of(
            binary().toString(), "serve",
            "--data-dir", directory.resolve("data").toString(),
            "--kv-port", ports.get(0),
            "--mgmt-port", ports.get(1),
            "--memcached-port", ports.get(2),
            "--listen", "127.0.0.1",
            "--bucket", BUCKET, "--user", USER, "--password", PASSWORD);
    List<String> command = Stream.concat(fixed.stream(), flags.stream()).toList();
    File log = logPath().toFile();
    try {
      process =
          new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.appendTo(log)).start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    Matcher match = READY.matcher(firstLine());
    if (!match.matches()) {
      throw new IllegalStateException("the server did not become ready\n" + log());
    }
    ports = List.of(match.group(1), match.group(2), match.group(3));
    tlsPort = match.group(4);
  }

  private String firstLine() {
    BufferedReader stdout =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    CompletableFuture<String> line =
        CompletableFuture.supplyAsync(
            () -> {
              try {
                return String.valueOf(stdout.readLine());
              } catch (IOException e) {
                throw new UncheckedIOException(e);
              }
            });
    try {
      return line.get(READY_SECONDS, TimeUnit.SECONDS);
    } catch (Exception e) {
      process.destroyForcibly();
      return "";
    }
  }

  /** The CA that the server makes with {@code --tls=auto}. */
  Path autoCa() {
    return directory.resolve("data").resolve("tls-auto-ca.pem");
  }

  String connectionString() {
    if (tlsPort != null) {
      return "couchbases://127.0.0.1:" + tlsPort;
    }
    return "couchbase://127.0.0.1:" + ports.get(0);
  }

  private Path logPath() {
    return directory.resolve("stderr");
  }

  String log() {
    try {
      return Files.readString(logPath());
    } catch (IOException e) {
      return "";
    }
  }

  /** SIGTERM; returns the exit code. */
  int terminate() throws InterruptedException {
    process.destroy();
    if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
      throw new IllegalStateException("the server did not end within " + STOP_SECONDS + " s");
    }
    return process.exitValue();
  }

  /** SIGKILL: no goodbye, nothing is flushed. */
  void kill() throws InterruptedException {
    process.destroyForcibly();
    process.waitFor();
  }

  /** Ends the server if it runs and removes its data directory. */
  @Override
  public void close() {
    if (process != null) {
      process.destroyForcibly();
    }
    remove(directory);
  }

  static void remove(Path directory) {
    try (Stream<Path> files = Files.walk(directory)) {
      files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
    } catch (IOException | UncheckedIOException e) {
      // Nothing is left to remove, or a later run of the system's cleaner removes it.
    }
  }
}
