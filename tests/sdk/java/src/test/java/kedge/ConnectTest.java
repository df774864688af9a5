package kedge;

import static kedge.Shared.CLUSTER;
import static kedge.Shared.COLLECTION;
import static kedge.Shared.LIMIT;
import static kedge.Shared.SERVER;
import static kedge.Shared.newKey;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.diagnostics.ClusterState;
import com.couchbase.client.core.diagnostics.PingState;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.ServiceNotAvailableException;
import com.couchbase.client.core.error.UnambiguousTimeoutException;
import com.couchbase.client.core.service.ServiceType;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.diagnostics.PingOptions;
import com.couchbase.client.java.kv.GetOptions;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ConnectTest {
  @Test
  void clusterAndBucketBecomeReady() {
    CLUSTER.waitUntilReady(LIMIT);
    COLLECTION.upsert(newKey(), 1);
    assertEquals(ClusterState.ONLINE, CLUSTER.diagnostics().state());
  }

  @Test
  void pingReachesTheKeyValueService() {
    var options = PingOptions.pingOptions().serviceTypes(Set.of(ServiceType.KV));
    var report = CLUSTER.bucket(KedgeServer.BUCKET).ping(options);
    var endpoints = report.endpoints().get(ServiceType.KV);
    assertFalse(endpoints.isEmpty());
    assertTrue(endpoints.stream().allMatch(endpoint -> endpoint.state() == PingState.OK));
  }

  @ParameterizedTest
  @CsvSource({"Administrator,wrong", "nobody,password", "nobody,wrong"})
  void wrongCredentials(String user, String password) {
    wantRefusal(Shared.connect(SERVER, user, password), KedgeServer.BUCKET, "SaslAuthenticationFailed");
  }

  @Test
  void missingBucket() {
    // A connection of its own: the SDK goes on trying, and its cluster is not ready meanwhile.
    Cluster own = Shared.connect(SERVER, KedgeServer.USER, KedgeServer.PASSWORD);
    wantRefusal(own, "no-such-bucket", "NO_ACCESS");
  }

  /**
   * Opens a bucket, which must not become ready, and waits for an event of the SDK that names the
   * reason. The exception names it only when the SDK has an attempt under way as the time is up.
   */
  static void wantRefusal(Cluster own, String bucket, String reason) {
    try {
      var refused = new CountDownLatch(1);
      own.environment()
          .eventBus()
          .subscribe(
              event -> {
                if (event.toString().contains(reason)) {
                  refused.countDown();
                }
              });
      var opened = own.bucket(bucket);
      assertTrue(refused.await(LIMIT.toSeconds(), TimeUnit.SECONDS), "no event says " + reason);
      assertThrows(
          UnambiguousTimeoutException.class, () -> opened.waitUntilReady(Duration.ofMillis(500)));
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    } finally {
      own.disconnect();
    }
  }

  @Test
  void servicesThatAreNotThereFailAtOnce() {
    assertThrows(ServiceNotAvailableException.class, () -> CLUSTER.query("SELECT 1"));
  }

  @Test
  void namedCollectionsFailCleanly() {
    var named = CLUSTER.bucket(KedgeServer.BUCKET).scope("s").collection("c");
    var options = GetOptions.getOptions().timeout(Duration.ofSeconds(2));
    assertThrows(CouchbaseException.class, () -> named.get("key", options));
  }
}
