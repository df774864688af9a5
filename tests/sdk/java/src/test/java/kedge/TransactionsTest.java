package kedge;

import static kedge.Shared.CLUSTER;
import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInOptions;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.ScanType;
import com.couchbase.client.java.transactions.TransactionAttemptContext;
import com.couchbase.client.java.transactions.config.TransactionOptions;
import com.couchbase.client.java.transactions.error.TransactionFailedException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

/**
 * Distributed transactions of the SDK, on one node and on two. They stand on extended attributes,
 * macros, documents created as deleted, CAS and durable writes.
 */
class TransactionsTest {
  abstract static class Transactions {
    private final String inserted = newKey();
    private final String replaced = newKey();
    private final String removed = newKey();

    abstract Cluster cluster();

    abstract Collection documents();

    private static JsonObject n(int n) {
      return JsonObject.create().put("n", n);
    }

    private static TransactionOptions options() {
      return TransactionOptions.transactionOptions();
    }

    private void run(Consumer<TransactionAttemptContext> work) {
      run(work, options());
    }

    /** Runs a transaction, with time enough on a busy machine. */
    private void run(Consumer<TransactionAttemptContext> work, TransactionOptions options) {
      var result = cluster().transactions().run(work, options.timeout(Shared.LIMIT));
      assertTrue(result.unstagingComplete());
    }

    private void want(String key, int wanted) {
      assertEquals(n(wanted), documents().get(key).contentAsObject());
    }

    private void wantNothingStaged(String key) {
      var options = LookupInOptions.lookupInOptions().accessDeleted(true);
      var found = documents().lookupIn(key, List.of(LookupInSpec.get("txn").xattr()), options);
      assertFalse(found.exists(0), key);
    }

    /** Stages one change of each kind. */
    private void change(TransactionAttemptContext attempt) {
      attempt.insert(documents(), inserted, n(3));
      attempt.replace(attempt.get(documents(), replaced), n(4));
      attempt.remove(attempt.get(documents(), removed));
    }

    @Test
    void commit() {
      documents().upsert(replaced, n(1));
      documents().upsert(removed, n(2));
      run(
          attempt -> {
            change(attempt);
            // The transaction sees its changes, and nobody else does.
            assertEquals(n(3), attempt.get(documents(), inserted).contentAsObject());
            assertEquals(n(4), attempt.get(documents(), replaced).contentAsObject());
            assertThrows(
                DocumentNotFoundException.class, () -> attempt.get(documents(), removed));
            assertFalse(documents().exists(inserted).exists());
            want(replaced, 1);
            want(removed, 2);
          });
      want(inserted, 3);
      want(replaced, 4);
      assertFalse(documents().exists(removed).exists());
      wantNothingStaged(inserted);
      wantNothingStaged(replaced);
    }

    @Test
    void commitAtEveryLevel() {
      for (var level : ClusterTest.LEVELS) {
        documents().upsert(replaced, n(1));
        documents().upsert(removed, n(2));
        run(this::change, options().durabilityLevel(level));
        want(inserted, 3);
        want(replaced, 4);
        assertFalse(documents().exists(removed).exists());
        wantNothingStaged(inserted);
        wantNothingStaged(replaced);
        documents().remove(inserted);
      }
    }

    /**
     * What transactions note of their progress is there, and documents of two other collections
     * change together.
     */
    @Test
    void metadataInACollectionOfItsOwn() {
      var bucket = cluster().bucket(KedgeServer.BUCKET);
      String scope = "s-" + newKey().substring(0, 8);
      bucket.collections().createScope(scope);
      for (String name : List.of("a", "metadata")) {
        bucket.collections().createCollection(scope, name);
      }
      var metadata = bucket.scope(scope).collection("metadata");
      var all = List.of(bucket.scope(scope).collection("a"), documents());
      for (int n = 0; n < all.size(); n++) {
        all.get(n).upsert(replaced, n(n));
      }
      run(
          attempt -> {
            for (var each : all) {
              var found = attempt.get(each, replaced);
              attempt.replace(found, n(found.contentAsObject().getInt("n") + 10));
            }
          },
          options().metadataCollection(metadata));
      for (int n = 0; n < all.size(); n++) {
        assertEquals(n(n + 10), all.get(n).get(replaced).contentAsObject());
      }
      assertTrue(metadata.scan(ScanType.prefixScan("_txn:atr-")).count() > 0);
      // The scope stays: the SDK looks for lost transactions in it, and a disconnect waits for that.
    }

    @Test
    void rollback() {
      documents().upsert(replaced, n(1));
      documents().upsert(removed, n(2));
      assertThrows(
          TransactionFailedException.class,
          () ->
              run(
                  attempt -> {
                    change(attempt);
                    throw new IllegalStateException("enough");
                  }));
      assertFalse(documents().exists(inserted).exists());
      want(replaced, 1);
      want(removed, 2);
      wantNothingStaged(replaced);
      wantNothingStaged(removed);
      // The key of what was staged is free again.
      documents().insert(inserted, n(5));
    }

    @Test
    void whatATransactionMayNotDo() {
      documents().upsert(replaced, n(1));
      run(
          attempt -> {
            assertThrows(
                DocumentNotFoundException.class, () -> attempt.get(documents(), inserted));
            assertThrows(
                DocumentExistsException.class,
                () -> attempt.insert(documents(), replaced, n(2)));
            attempt.replace(attempt.get(documents(), replaced), n(3));
          });
      want(replaced, 3);
    }

    @Test
    void insertAfterRemove() {
      documents().upsert(removed, n(1));
      documents().remove(removed);
      run(attempt -> attempt.insert(documents(), removed, n(2)));
      want(removed, 2);
    }

    @Test
    void aWriteBetweenMakesATransactionBeginAgain() {
      documents().upsert(replaced, n(1));
      var attempts = new ArrayList<Integer>();
      run(
          attempt -> {
            var found = attempt.get(documents(), replaced);
            attempts.add(found.contentAsObject().getInt("n"));
            if (attempts.size() == 1) {
              documents().upsert(replaced, n(10));
            }
            attempt.replace(found, n(attempts.get(attempts.size() - 1) + 1));
          });
      assertTrue(attempts.size() > 1, attempts::toString);
      want(replaced, 11);
    }

    /** Each moves 1 from one document to the other, so what one of them loses shows in the sums. */
    @Test
    void conflictingTransactionsTakeTurns() {
      int writers = 3;
      int each = 4;
      documents().upsert(removed, n(100));
      documents().upsert(replaced, n(0));
      var threads = Executors.newFixedThreadPool(writers);
      Runnable writer =
          () -> {
            for (int n = 0; n < each; n++) {
              run(
                  attempt -> {
                    add(attempt, removed, -1);
                    add(attempt, replaced, 1);
                  });
            }
          };
      var all = new ArrayList<CompletableFuture<Void>>();
      for (int n = 0; n < writers; n++) {
        all.add(CompletableFuture.runAsync(writer, threads));
      }
      all.forEach(CompletableFuture::join);
      threads.shutdown();
      want(removed, 100 - writers * each);
      want(replaced, writers * each);
    }

    private void add(TransactionAttemptContext attempt, String key, int delta) {
      var found = attempt.get(documents(), key);
      attempt.replace(found, n(found.contentAsObject().getInt("n") + delta));
    }
  }

  @Nested
  class OnOneNode extends Transactions {
    @Override
    Cluster cluster() {
      return CLUSTER;
    }

    @Override
    Collection documents() {
      return COLLECTION;
    }
  }

  @Nested
  class OnTwoNodes extends Transactions {
    private static KedgeCluster nodes;
    private static Cluster cluster;
    private static Collection documents;

    @BeforeAll
    static void start() {
      nodes = new KedgeCluster(2, 1);
      cluster =
          Shared.connectTo(nodes.connectionString(), KedgeServer.USER, KedgeServer.PASSWORD);
      documents = Shared.open(cluster, KedgeServer.BUCKET);
    }

    @AfterAll
    static void stop() {
      cluster.disconnect();
      nodes.close();
    }

    @Override
    Cluster cluster() {
      return cluster;
    }

    @Override
    Collection documents() {
      return documents;
    }
  }
}
