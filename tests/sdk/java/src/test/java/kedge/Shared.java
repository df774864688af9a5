package kedge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentLockedException;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.env.ClusterEnvironment;
import java.time.Duration;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.junit.jupiter.api.function.Executable;

/** The server and the connection that all tests but those that end a server share, and helpers. */
final class Shared {
  static final Duration LIMIT = Duration.ofSeconds(60);

  static final KedgeServer SERVER = new KedgeServer();
  static final Cluster CLUSTER = connect(SERVER, KedgeServer.USER, KedgeServer.PASSWORD);
  static final Collection COLLECTION = open(CLUSTER, KedgeServer.BUCKET);

  private Shared() {}

  static Cluster connect(KedgeServer server, String user, String password) {
    return connectTo(server.connectionString(), user, password);
  }

  static Cluster connectTo(String connectionString, String user, String password) {
    return connectTo(connectionString, user, password, environment -> {});
  }

  static Cluster connectTo(
      String connectionString,
      String user,
      String password,
      Consumer<ClusterEnvironment.Builder> settings) {
    ClusterOptions options =
        ClusterOptions.clusterOptions(user, password)
            .environment(
                env -> {
                  // An attempt to connect has the time that it has by default, and then comes another.
                  env.timeoutConfig(
                      timeouts ->
                          timeouts
                              .kvTimeout(LIMIT)
                              .kvDurableTimeout(LIMIT)
                              .disconnectTimeout(LIMIT));
                  settings.accept(env);
                });
    return Cluster.connect(connectionString, options);
  }

  static Collection open(Cluster cluster, String bucket) {
    var opened = cluster.bucket(bucket);
    opened.waitUntilReady(LIMIT);
    return opened.defaultCollection();
  }

  static String newKey() {
    return UUID.randomUUID().toString();
  }

  /** Asks again and again until the condition is true. */
  static void until(String what, BooleanSupplier condition) {
    long end = System.nanoTime() + LIMIT.toNanos();
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() < end, () -> "not within " + LIMIT + ": " + what);
      try {
        Thread.sleep(50);
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  static void untilGone(Collection collection, String key) {
    until(key + " is gone", () -> !collection.exists(key).exists());
  }

  static void wantInt(Collection collection, String key, int wanted) {
    assertEquals(wanted, collection.get(key).contentAs(Integer.class));
  }

  /**
   * The SDK tries again for as long as a document is locked; what ends the attempt is a retry
   * strategy, and the reason stands in the context of the exception.
   */
  static void wantLocked(Executable attempt) {
    CouchbaseException error = assertThrows(CouchbaseException.class, attempt);
    boolean locked = error instanceof DocumentLockedException || error.toString().contains("KV_LOCKED");
    assertTrue(locked, error::toString);
  }
}
