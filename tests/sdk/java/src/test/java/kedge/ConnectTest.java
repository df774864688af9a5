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
import com.couchbase.client.java.kv.ScanType;
import java.time.Duration;
import java.util.List;
import java.util.Set;
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
    Cluster wrong = Shared.connect(SERVER, user, password);
    try {
      var bucket = wrong.bucket(KedgeServer.BUCKET);
      var error =
          assertThrows(
              UnambiguousTimeoutException.class, () -> bucket.waitUntilReady(Duration.ofSeconds(2)));
      assertTrue(error.toString().contains("User authentication failed"), error::toString);
    } finally {
      wrong.disconnect();
    }
  }

  @Test
  void missingBucket() {
    // A connection of its own: the SDK goes on trying, and its cluster is not ready meanwhile.
    Cluster own = Shared.connect(SERVER, KedgeServer.USER, KedgeServer.PASSWORD);
    try {
      var missing = own.bucket("no-such-bucket");
      // Says what was met so far, which on a busy machine may be nothing yet.
      String said = "";
      for (int attempt = 0; attempt < 10 && !said.contains("NO_ACCESS"); attempt++) {
        var error =
            assertThrows(
                UnambiguousTimeoutException.class,
                () -> missing.waitUntilReady(Duration.ofSeconds(2)));
        said = error.toString();
      }
      assertTrue(said.contains("NO_ACCESS"), said);
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

  @Test
  void rangeScansGiveWhatWasWritten() {
    COLLECTION.upsert("scan-java-1", "a");
    COLLECTION.upsert("scan-java-2", "b");
    var found = COLLECTION.scan(ScanType.prefixScan("scan-java-")).map(it -> it.id()).sorted();
    assertEquals(List.of("scan-java-1", "scan-java-2"), found.toList());
  }
}
