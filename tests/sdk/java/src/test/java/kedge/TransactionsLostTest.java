package kedge;

import static kedge.Shared.newKey;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInOptions;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.transactions.config.TransactionOptions;
import com.couchbase.client.java.transactions.config.TransactionsCleanupConfig;
import com.couchbase.client.java.transactions.config.TransactionsConfig;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/**
 * A client is killed after it has staged changes, and before it commits: others do not see them, and
 * get past them.
 */
class TransactionsLostTest {
  private final String inserted = newKey();
  private final String replaced = newKey();
  private final String removed = newKey();

  private static JsonObject n(int n) {
    return JsonObject.create().put("n", n);
  }

  private static boolean isStaged(Collection documents, String key) {
    var options = LookupInOptions.lookupInOptions().accessDeleted(true);
    return documents.lookupIn(key, List.of(LookupInSpec.get("txn").xattr()), options).exists(0);
  }

  /** Another process stages an insert, a replacement and a removal, and is killed before it commits. */
  private void killedWhileStaged(String to) throws Exception {
    var child =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", System.getProperty("java.class.path"),
                StagingClient.class.getName(), to, inserted, replaced, removed)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    try {
      var stdout =
          new BufferedReader(new InputStreamReader(child.getInputStream(), StandardCharsets.UTF_8));
      assertEquals("staged", stdout.readLine());
    } finally {
      child.destroyForcibly().waitFor();
    }
  }

  private void aClientIsLost(String to) throws Exception {
    // It looks so often for what others have lost, from its first transaction in a bucket on.
    var cleanup = TransactionsCleanupConfig.cleanupWindow(Duration.ofSeconds(1));
    try (var cluster =
        Shared.connectTo(
            to,
            KedgeServer.USER,
            KedgeServer.PASSWORD,
            environment ->
                environment.transactionsConfig(TransactionsConfig.cleanupConfig(cleanup)))) {
      var documents = Shared.open(cluster, KedgeServer.BUCKET);
      var options = TransactionOptions.transactionOptions().timeout(Shared.LIMIT);
      cluster.transactions().run(attempt -> attempt.insert(documents, newKey(), n(0)), options);
      documents.upsert(replaced, n(1));
      documents.upsert(removed, n(2));
      killedWhileStaged(to);

      for (String key : List.of(inserted, replaced, removed)) {
        assertTrue(isStaged(documents, key), key);
      }
      assertFalse(documents.exists(inserted).exists());
      assertEquals(n(1), documents.get(replaced).contentAsObject());
      assertEquals(n(2), documents.get(removed).contentAsObject());

      // It conflicts with what is staged until that has expired.
      cluster
          .transactions()
          .run(
              attempt -> {
                attempt.replace(attempt.get(documents, replaced), n(100));
                attempt.replace(attempt.get(documents, removed), n(200));
                attempt.insert(documents, inserted, n(300));
              },
              options);
      for (var wanted : Map.of(inserted, 300, replaced, 100, removed, 200).entrySet()) {
        assertEquals(n(wanted.getValue()), documents.get(wanted.getKey()).contentAsObject());
        assertFalse(isStaged(documents, wanted.getKey()), wanted.getKey());
      }
    }
  }

  @Test
  void aClientIsLostOnOneNode() throws Exception {
    try (var server = new KedgeServer()) {
      aClientIsLost(server.connectionString());
    }
  }

  @Test
  void aClientIsLostOnTwoNodes() throws Exception {
    try (var nodes = new KedgeCluster(2, 1)) {
      aClientIsLost(nodes.connectionString());
    }
  }
}
