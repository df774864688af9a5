package kedge;

import static kedge.Shared.connectTo;
import static kedge.Shared.open;
import static kedge.Shared.until;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentUnretrievableException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.LookupInResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInOptions;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.ScanResult;
import com.couchbase.client.java.kv.ScanType;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ClusterTest {
  private static final int COUNT = 100;
  static final List<DurabilityLevel> LEVELS =
      List.of(
          DurabilityLevel.MAJORITY,
          DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE,
          DurabilityLevel.PERSIST_TO_MAJORITY);

  static void upsert(Collection collection, String key, int value, DurabilityLevel level) {
    collection.upsert(key, value, UpsertOptions.upsertOptions().durability(level));
  }

  /** Whether the active and all replicas have it: a replica hears of the commit after the client does. */
  static boolean hasAll(Collection collection, String key, int value, int copies) {
    var found = collection.getAllReplicas(key).toList();
    assertEquals(1, found.stream().filter(each -> !each.isReplica()).count());
    return found.size() == copies
        && found.stream().allMatch(each -> each.contentAs(Integer.class) == value);
  }

  static void pathsOnReplicas(Collection collection, int copies) {
    collection.upsert("paths", Map.of("n", 1));
    collection.mutateIn(
        "paths",
        List.of(
            MutateInSpec.upsert("_sys.n", 2).xattr().createPath(), MutateInSpec.increment("n", 1)),
        MutateInOptions.mutateInOptions().durability(DurabilityLevel.MAJORITY));
    List<LookupInSpec> paths =
        List.of(LookupInSpec.get("_sys.n").xattr(), LookupInSpec.get("n"));
    Predicate<LookupInResult> isChanged =
        found ->
            found.exists(0)
                && found.contentAs(0, Integer.class) == 2
                && found.contentAs(1, Integer.class) == 2;
    until(
        "the paths are on all replicas",
        () -> {
          var found = collection.lookupInAllReplicas("paths", paths).toList();
          assertEquals(1, found.stream().filter(each -> !each.isReplica()).count());
          return found.size() == copies && found.stream().allMatch(isChanged);
        });
    assertTrue(isChanged.test(collection.lookupInAnyReplica("paths", paths)));
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 3})
  void durableWritesAndReplicaReads(int count) {
    try (var nodes = new KedgeCluster(count, count - 1);
        var cluster = connectTo(nodes.connectionString(), KedgeServer.USER, KedgeServer.PASSWORD)) {
      Collection collection = open(cluster, KedgeServer.BUCKET);
      for (DurabilityLevel level : LEVELS) {
        for (int n = 0; n < COUNT; n++) {
          upsert(collection, level + "-" + n, n, level);
        }
        for (int n = 0; n < 20; n++) {
          String key = level + "-" + n;
          int value = n;
          until(key + " is everywhere", () -> hasAll(collection, key, value, count));
          assertEquals(n, collection.getAnyReplica(key).contentAs(Integer.class));
        }
      }
      assertThrows(DocumentUnretrievableException.class, () -> collection.getAnyReplica("nothing"));
      pathsOnReplicas(collection, count);
      // Each node scans its vBuckets.
      var found = collection.scan(ScanType.rangeScan(null, null)).map(ScanResult::id).distinct();
      assertEquals(LEVELS.size() * COUNT + 1, found.count());
    }
  }

  @Test
  void theClientGoesOnThroughAFailover() throws Exception {
    try (var nodes = new KedgeCluster(3, 2);
        var cluster = connectTo(nodes.connectionString(), KedgeServer.USER, KedgeServer.PASSWORD)) {
      Collection collection = open(cluster, KedgeServer.BUCKET);
      for (int n = 0; n < COUNT; n++) {
        upsert(collection, "key-" + n, n, DurabilityLevel.MAJORITY);
      }
      nodes.failOver(2);
      var soon = GetOptions.getOptions().timeout(Duration.ofSeconds(1));
      for (int n = 0; n < COUNT; n++) {
        String key = "key-" + n;
        int value = n;
        until(
            key + " is found at another node",
            () -> {
              try {
                return collection.get(key, soon).contentAs(Integer.class) == value;
              } catch (CouchbaseException e) {
                return false;
              }
            });
      }
      for (DurabilityLevel level : LEVELS) {
        for (int n = 0; n < 50; n++) {
          upsert(collection, "key-" + n, -n, level);
          wantInt(collection, "key-" + n, -n);
        }
      }
    }
  }
}
