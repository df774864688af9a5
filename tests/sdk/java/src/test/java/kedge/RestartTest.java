package kedge;

import static kedge.Shared.until;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.RemoveOptions;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class RestartTest {
  private final KedgeServer server = new KedgeServer();
  private final Cluster cluster = Shared.connect(server, KedgeServer.USER, KedgeServer.PASSWORD);
  private final Collection collection = Shared.open(cluster, KedgeServer.BUCKET);

  @AfterEach
  void close() {
    cluster.disconnect();
    server.close();
  }

  private void startAgain(String key) {
    server.start();
    var options = GetOptions.getOptions().timeout(Duration.ofSeconds(1));
    until(
        "the client reconnects",
        () -> {
          try {
            collection.get(key, options);
            return true;
          } catch (CouchbaseException e) {
            return false;
          }
        });
  }

  @Test
  void anOrderlyRestartKeepsEverything() throws InterruptedException {
    for (int n = 0; n < 1_000; n++) {
      collection.upsert("key-" + n, n);
    }
    long cas = collection.get("key-0").cas();

    assertEquals(0, server.terminate(), server::log);
    startAgain("key-0");

    for (int n = 0; n < 1_000; n++) {
      wantInt(collection, "key-" + n, n);
    }
    assertEquals(cas, collection.get("key-0").cas());
    assertTrue(Long.compareUnsigned(collection.upsert("key-0", 1).cas(), cas) > 0);
  }

  @ParameterizedTest
  @EnumSource(
      value = DurabilityLevel.class,
      names = {"MAJORITY_AND_PERSIST_TO_ACTIVE", "PERSIST_TO_MAJORITY"})
  void acknowledgedWritesSurviveAKill(DurabilityLevel level) throws InterruptedException {
    var options = UpsertOptions.upsertOptions().durability(level);
    for (int n = 0; n < 200; n++) {
      collection.upsert("key-" + n, n, options);
    }
    collection.remove("key-0", RemoveOptions.removeOptions().durability(level));

    server.kill();
    startAgain("key-1");

    for (int n = 1; n < 200; n++) {
      wantInt(collection, "key-" + n, n);
    }
    assertThrows(DocumentNotFoundException.class, () -> collection.get("key-0"));
    collection.upsert("key-0", 0, options);
  }
}
