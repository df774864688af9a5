package kedge;

import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static kedge.Shared.wantInt;
import static kedge.Shared.wantLocked;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.DocumentNotLockedException;
import com.couchbase.client.core.retry.FailFastRetryStrategy;
import com.couchbase.client.core.retry.RetryStrategy;
import com.couchbase.client.java.kv.GetAndLockOptions;
import com.couchbase.client.java.kv.ReplaceOptions;
import com.couchbase.client.java.kv.UnlockOptions;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class LocksTest {
  private static final Duration LOCK = Duration.ofSeconds(30);
  private static final RetryStrategy FAIL_FAST = FailFastRetryStrategy.INSTANCE;
  private static final Duration SECOND = Duration.ofSeconds(1);

  private final String key = newKey();

  @Test
  void lockAndUnlock() {
    COLLECTION.upsert(key, 1);
    var locked = COLLECTION.getAndLock(key, LOCK);
    assertEquals(1, locked.contentAs(Integer.class));
    wantInt(COLLECTION, key, 1);
    var upsert = UpsertOptions.upsertOptions().retryStrategy(FAIL_FAST);
    wantLocked(() -> COLLECTION.upsert(key, 2, upsert));
    var lock = GetAndLockOptions.getAndLockOptions().retryStrategy(FAIL_FAST);
    wantLocked(() -> COLLECTION.getAndLock(key, LOCK, lock));
    wantInt(COLLECTION, key, 1);
    COLLECTION.unlock(key, locked.cas());
    COLLECTION.upsert(key, 3);
    wantInt(COLLECTION, key, 3);
  }

  @Test
  void unlockNeedsTheCasOfTheLock() {
    var options = UnlockOptions.unlockOptions().retryStrategy(FAIL_FAST);
    long stored = COLLECTION.upsert(key, 1).cas();
    assertThrows(DocumentNotLockedException.class, () -> COLLECTION.unlock(key, stored, options));
    long locked = COLLECTION.getAndLock(key, LOCK).cas();
    assertThrows(CouchbaseException.class, () -> COLLECTION.unlock(key, locked + 1, options));
    COLLECTION.unlock(key, locked, options);
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.getAndLock(newKey(), LOCK));
  }

  @Test
  void aWriteWithTheCasOfTheLockUnlocks() {
    COLLECTION.upsert(key, 1);
    long locked = COLLECTION.getAndLock(key, LOCK).cas();
    COLLECTION.replace(key, 2, ReplaceOptions.replaceOptions().cas(locked));
    COLLECTION.upsert(key, 3, UpsertOptions.upsertOptions().retryStrategy(FAIL_FAST));
    wantInt(COLLECTION, key, 3);
  }

  @Test
  void aLockEndsByItself() {
    COLLECTION.upsert(key, 1);
    COLLECTION.getAndLock(key, SECOND);
    // The SDK tries again for as long as the document is locked.
    COLLECTION.upsert(key, 2);
    wantInt(COLLECTION, key, 2);
  }
}
