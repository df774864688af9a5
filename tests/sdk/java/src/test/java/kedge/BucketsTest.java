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
import com.couchbase.client.java.manager.bucket.BucketManager;
import com.couchbase.client.java.manager.bucket.BucketSettings;
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
}
