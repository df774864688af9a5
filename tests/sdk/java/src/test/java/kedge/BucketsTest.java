package kedge;

import static kedge.Shared.CLUSTER;
import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static kedge.Shared.untilGone;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.BucketExistsException;
import com.couchbase.client.core.error.BucketNotFlushableException;
import com.couchbase.client.core.error.BucketNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.manager.bucket.BucketManager;
import com.couchbase.client.java.manager.bucket.BucketSettings;
import com.couchbase.client.java.manager.bucket.CompressionMode;
import com.couchbase.client.java.manager.bucket.ConflictResolutionType;
import com.couchbase.client.java.manager.bucket.EvictionPolicyType;
import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class BucketsTest {
  private final BucketManager manager = CLUSTER.buckets();
  private final String name = "b-" + newKey().substring(0, 8);

  @AfterEach
  void drop() {
    if (manager.getAllBuckets().containsKey(name)) {
      manager.dropBucket(name);
    }
  }

  private BucketSettings settings(boolean flushEnabled) {
    return BucketSettings.create(name).ramQuotaMB(100).flushEnabled(flushEnabled).numReplicas(0);
  }

  @Test
  void createUseFlushDrop() {
    manager.createBucket(settings(true));
    assertThrows(BucketExistsException.class, () -> manager.createBucket(settings(true)));
    var created = manager.getBucket(name);
    assertEquals(100, created.ramQuotaMB());
    assertTrue(created.flushEnabled());
    assertTrue(manager.getAllBuckets().containsKey(name));

    String key = newKey();
    var other = Shared.open(CLUSTER, name);
    other.upsert(key, 1);
    assertFalse(COLLECTION.exists(key).exists());
    manager.flushBucket(name);
    untilGone(other, key);
    other.upsert(key, 2);
    wantInt(other, key, 2);

    manager.dropBucket(name);
    assertThrows(BucketNotFoundException.class, () -> manager.getBucket(name));
    assertThrows(BucketNotFoundException.class, () -> manager.dropBucket(name));
  }

  @Test
  void flushMustBeEnabled() {
    manager.createBucket(settings(false));
    assertThrows(BucketNotFlushableException.class, () -> manager.flushBucket(name));
    manager.updateBucket(settings(true).ramQuotaMB(128));
    var updated = manager.getBucket(name);
    assertEquals(128, updated.ramQuotaMB());
    assertTrue(updated.flushEnabled());
    manager.flushBucket(name);
  }

  private void check(BucketSettings asked) {
    var got = manager.getBucket(name);
    assertEquals(asked.ramQuotaMB(), got.ramQuotaMB());
    assertEquals(asked.flushEnabled(), got.flushEnabled());
    assertEquals(asked.numReplicas(), got.numReplicas());
    assertEquals(asked.maxExpiry(), got.maxExpiry());
    assertEquals(asked.compressionMode(), got.compressionMode());
    assertEquals(asked.evictionPolicy(), got.evictionPolicy());
    assertEquals(asked.minimumDurabilityLevel(), got.minimumDurabilityLevel());
    assertEquals(ConflictResolutionType.TIMESTAMP, got.conflictResolutionType());
  }

  @Test
  void settingsAreWhatWasAskedFor() {
    var asked =
        settings(false)
            .ramQuotaMB(101)
            .numReplicas(2)
            .maxExpiry(Duration.ofHours(1))
            .compressionMode(CompressionMode.ACTIVE)
            .evictionPolicy(EvictionPolicyType.FULL)
            .minimumDurabilityLevel(DurabilityLevel.MAJORITY)
            .conflictResolutionType(ConflictResolutionType.TIMESTAMP);
    manager.createBucket(asked);
    check(asked);
    var other =
        settings(true)
            .ramQuotaMB(102)
            .numReplicas(1)
            .maxExpiry(Duration.ofHours(2))
            .compressionMode(CompressionMode.OFF)
            .evictionPolicy(EvictionPolicyType.VALUE_ONLY)
            .minimumDurabilityLevel(DurabilityLevel.PERSIST_TO_MAJORITY);
    manager.updateBucket(other);
    check(other);
    assertThrows(CouchbaseException.class, () -> manager.updateBucket(settings(true).numReplicas(4)));
    check(other);
  }
}
