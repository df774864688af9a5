package kedge;

import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.transactions.config.TransactionOptions;
import com.couchbase.client.java.transactions.config.TransactionsCleanupConfig;
import com.couchbase.client.java.transactions.config.TransactionsConfig;
import java.io.IOException;
import java.time.Duration;

/**
 * Stages changes in a transaction, says so, and never commits: it waits until it is killed.
 *
 * <p>Arguments: a connection string, and the keys of what to insert, to replace and to remove.
 */
final class StagingClient {
  /** A transaction that takes longer has expired, and anybody may take back what it has staged. */
  private static final Duration LOST_AFTER = Duration.ofSeconds(2);

  private StagingClient() {}

  public static void main(String[] arguments) {
    // One that looks for what others have lost has a part of the records to look at, which others
    // leave to it for a while.
    var cleanup = TransactionsCleanupConfig.cleanupLostAttempts(false);
    // Nothing of Shared, which starts a server that nobody would end.
    var options =
        ClusterOptions.clusterOptions(KedgeServer.USER, KedgeServer.PASSWORD)
            .environment(
                env -> env.transactionsConfig(TransactionsConfig.cleanupConfig(cleanup)));
    var cluster = Cluster.connect(arguments[0], options);
    var bucket = cluster.bucket(KedgeServer.BUCKET);
    bucket.waitUntilReady(Duration.ofSeconds(60));
    var documents = bucket.defaultCollection();
    cluster
        .transactions()
        .run(
            attempt -> {
              attempt.insert(documents, arguments[1], JsonObject.create().put("n", 30));
              attempt.replace(
                  attempt.get(documents, arguments[2]), JsonObject.create().put("n", 10));
              attempt.remove(attempt.get(documents, arguments[3]));
              System.out.println("staged");
              try {
                System.in.read();
              } catch (IOException e) {
                throw new IllegalStateException(e);
              }
            },
            TransactionOptions.transactionOptions().timeout(LOST_AFTER));
  }
}
