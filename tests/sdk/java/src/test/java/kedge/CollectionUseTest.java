package kedge;

import static kedge.ClusterTest.LEVELS;
import static kedge.ClusterTest.hasAll;
import static kedge.ClusterTest.pathsOnReplicas;
import static kedge.ClusterTest.upsert;
import static kedge.Shared.newKey;
import static kedge.Shared.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.DocumentUnretrievableException;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.LookupInOptions;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.ScanOptions;
import com.couchbase.client.java.kv.ScanResult;
import com.couchbase.client.java.kv.ScanTerm;
import com.couchbase.client.java.kv.ScanType;
import com.couchbase.client.java.kv.UpsertOptions;
import com.couchbase.client.java.manager.collection.CreateCollectionSettings;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

/** What is done with documents of named collections, on one node and on two. */
class CollectionUseTest {
  abstract static class Use {
    private static final Duration LONGEST = Duration.ofMinutes(10);

    private final String scope = "s-" + newKey().substring(0, 8);
    private Collection a;
    private Collection b;

    abstract Bucket bucket();

    abstract int nodes();

    @BeforeEach
    void create() {
      bucket().collections().createScope(scope);
      a = make("a", CreateCollectionSettings.createCollectionSettings());
      b = make("b", CreateCollectionSettings.createCollectionSettings());
    }

    @AfterEach
    void drop() {
      bucket().collections().dropScope(scope);
    }

    private Collection make(String name, CreateCollectionSettings settings) {
      bucket().collections().createCollection(scope, name, settings);
      return bucket().scope(scope).collection(name);
    }

    @Test
    void theTimeToLiveIsTheCollections() {
      var settings = CreateCollectionSettings.createCollectionSettings().maxExpiry(LONGEST);
      var documents = make("ttl", settings);
      for (var options : List.of(expiresIn(Duration.ZERO), expiresIn(Duration.ofDays(20)))) {
        var earliest = Instant.now().truncatedTo(ChronoUnit.SECONDS).plus(LONGEST);
        documents.upsert("key", 1, options);
        var latest = Instant.now().plusSeconds(1).plus(LONGEST);
        var found = expiry(documents);
        assertFalse(found.isBefore(earliest) || found.isAfter(latest), found::toString);
      }
      documents.upsert("key", 1, expiresIn(Duration.ofMinutes(1)));
      assertTrue(expiry(documents).isBefore(Instant.now().plusSeconds(61)));
    }

    private static UpsertOptions expiresIn(Duration time) {
      return UpsertOptions.upsertOptions().expiry(time);
    }

    private static Instant expiry(Collection documents) {
      return documents.get("key", GetOptions.getOptions().withExpiry(true)).expiryTime().orElseThrow();
    }

    @Test
    void scans() {
      var keys = IntStream.range(100, 120).mapToObj(n -> "key-" + n).toList();
      keys.forEach(key -> a.upsert(key, key));
      b.upsert("key-b", "elsewhere");
      var range = ScanType.rangeScan(ScanTerm.inclusive(keys.get(5)), ScanTerm.exclusive(keys.get(9)));
      for (boolean idsOnly : new boolean[] {false, true}) {
        assertEquals(keys, ids(ScanType.prefixScan("key-"), idsOnly));
        assertEquals(keys, ids(ScanType.rangeScan(null, null), idsOnly));
        assertEquals(keys.subList(5, 9), ids(range, idsOnly));
        assertEquals(keys, ids(ScanType.samplingScan(100, 7), idsOnly));
        assertEquals(10, ids(ScanType.samplingScan(10, 7), idsOnly).stream().distinct().count());
      }
      a.scan(range).forEach(found -> assertEquals(found.id(), found.contentAs(String.class)));
      keys.forEach(a::remove);
      assertEquals(List.of(), ids(ScanType.rangeScan(null, null), true));
    }

    private List<String> ids(ScanType type, boolean idsOnly) {
      var options = ScanOptions.scanOptions().idsOnly(idsOnly);
      return a.scan(type, options).map(ScanResult::id).sorted().toList();
    }

    @Test
    void paths() {
      a.upsert("key", JsonObject.create().put("n", 0));
      b.upsert("key", JsonObject.create().put("n", 1));
      a.mutateIn(
          "key",
          List.of(
              MutateInSpec.upsert("meta.owner", "me").xattr().createPath(),
              MutateInSpec.upsert("_sys", 2).xattr(),
              MutateInSpec.increment("n", 10)));
      List<LookupInSpec> paths =
          List.of(
              LookupInSpec.get("meta.owner").xattr(),
              LookupInSpec.get("_sys").xattr(),
              LookupInSpec.get("n"));
      var found = a.lookupIn("key", paths);
      assertEquals("me", found.contentAs(0, String.class));
      assertEquals(2, found.contentAs(1, Integer.class));
      assertEquals(10, found.contentAs(2, Integer.class));
      var other = b.lookupIn("key", paths);
      assertFalse(other.exists(0) || other.exists(1));
      assertEquals(1, other.contentAs(2, Integer.class));
      // An attribute of the system outlives the document, in its collection only.
      a.remove("key");
      var deleted = LookupInOptions.lookupInOptions().accessDeleted(true);
      var left = a.lookupIn("key", paths.subList(0, 2), deleted);
      assertFalse(left.exists(0));
      assertEquals(2, left.contentAs(1, Integer.class));
      assertEquals(JsonObject.create().put("n", 1), b.get("key").contentAsObject());
    }

    @Test
    void tenThousandDocuments() {
      DocumentsTest.tenThousand(a, newKey());
    }

    @Test
    void durableWritesAndReadsFromReplicas() {
      for (var level : LEVELS) {
        for (int n = 0; n < 20; n++) {
          String key = level + "-" + n;
          int value = n;
          b.upsert(key, -1);
          upsert(a, key, value, level);
          until(key + " is everywhere", () -> hasAll(a, key, value, nodes()));
          assertEquals(n, a.getAnyReplica(key).contentAs(Integer.class));
        }
      }
      pathsOnReplicas(a, nodes());
      b.upsert("elsewhere", 1);
      assertThrows(DocumentUnretrievableException.class, () -> a.getAnyReplica("elsewhere"));
    }
  }

  @Nested
  class OnOneNode extends Use {
    @Override
    Bucket bucket() {
      return Shared.CLUSTER.bucket(KedgeServer.BUCKET);
    }

    @Override
    int nodes() {
      return 1;
    }
  }

  @Nested
  class OnTwoNodes extends Use {
    private static KedgeCluster nodes;
    private static Cluster cluster;

    @BeforeAll
    static void start() {
      nodes = new KedgeCluster(2, 1);
      cluster = Shared.connectTo(nodes.connectionString(), KedgeServer.USER, KedgeServer.PASSWORD);
      Shared.open(cluster, KedgeServer.BUCKET);
    }

    @AfterAll
    static void stop() {
      cluster.disconnect();
      nodes.close();
    }

    @Override
    Bucket bucket() {
      return cluster.bucket(KedgeServer.BUCKET);
    }

    @Override
    int nodes() {
      return 2;
    }
  }
}
