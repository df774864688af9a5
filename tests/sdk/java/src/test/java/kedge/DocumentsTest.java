package kedge;

import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static kedge.Shared.untilGone;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.ValueTooLargeException;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.codec.RawJsonTranscoder;
import com.couchbase.client.java.codec.Transcoder;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.DecrementOptions;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.IncrementOptions;
import com.couchbase.client.java.kv.InsertOptions;
import com.couchbase.client.java.kv.RemoveOptions;
import com.couchbase.client.java.kv.ReplaceOptions;
import com.couchbase.client.java.kv.UpsertOptions;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Flux;

class DocumentsTest {
  private static final int LARGEST = 20 << 20;
  private static final Duration SECOND = Duration.ofSeconds(1);
  private static final Transcoder RAW = RawBinaryTranscoder.INSTANCE;

  private final String key = newKey();

  private static byte[] random(int length) {
    byte[] bytes = new byte[length];
    new Random(1).nextBytes(bytes);
    return bytes;
  }

  private static UpsertOptions expiresIn(Duration expiry) {
    return UpsertOptions.upsertOptions().expiry(expiry);
  }

  private void putRaw(byte[] value) {
    COLLECTION.upsert(key, value, UpsertOptions.upsertOptions().transcoder(RAW));
  }

  private byte[] getRaw() {
    return COLLECTION.get(key, GetOptions.getOptions().transcoder(RAW)).contentAsBytes();
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"{\"a\":[1,2.5,null,true,\"ä\\u0000\"]}", "[]", "\"text\"", "0", "-1.5", "true", "null"})
  void jsonValues(String json) {
    Transcoder raw = RawJsonTranscoder.INSTANCE;
    COLLECTION.upsert(key, json, UpsertOptions.upsertOptions().transcoder(raw));
    var read = COLLECTION.get(key, GetOptions.getOptions().transcoder(raw));
    assertEquals(json, read.contentAs(String.class));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 2_000, 100_000})
  void binaryValues(int length) {
    byte[] value = random(length);
    putRaw(value);
    assertArrayEquals(value, getRaw());
  }

  @Test
  void insertReplaceRemove() {
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.get(key));
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.replace(key, 0));
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.remove(key));
    COLLECTION.insert(key, 1);
    assertThrows(DocumentExistsException.class, () -> COLLECTION.insert(key, 2));
    COLLECTION.replace(key, 3);
    wantInt(COLLECTION, key, 3);
    COLLECTION.remove(key);
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.get(key));
  }

  @Test
  void exists() {
    assertFalse(COLLECTION.exists(key).exists());
    long cas = COLLECTION.upsert(key, 1).cas();
    assertTrue(COLLECTION.exists(key).exists());
    assertEquals(cas, COLLECTION.exists(key).cas());
    COLLECTION.remove(key);
    assertFalse(COLLECTION.exists(key).exists());
  }

  @Test
  void casConflicts() {
    long first = COLLECTION.upsert(key, 1).cas();
    var replaceFirst = ReplaceOptions.replaceOptions().cas(first);
    long second = COLLECTION.replace(key, 2, replaceFirst).cas();
    assertTrue(Long.compareUnsigned(second, first) > 0);
    assertThrows(CasMismatchException.class, () -> COLLECTION.replace(key, 3, replaceFirst));
    assertThrows(
        CasMismatchException.class,
        () -> COLLECTION.remove(key, RemoveOptions.removeOptions().cas(first)));
    wantInt(COLLECTION, key, 2);
    COLLECTION.remove(key, RemoveOptions.removeOptions().cas(second));
    assertFalse(COLLECTION.exists(key).exists());
  }

  @Test
  void mutationTokensGrow() {
    var first = COLLECTION.upsert(key, 1).mutationToken().orElseThrow();
    var second = COLLECTION.upsert(key, 2).mutationToken().orElseThrow();
    assertEquals(first.partitionID(), second.partitionID());
    assertEquals(first.partitionUUID(), second.partitionUUID());
    assertNotEquals(0, first.partitionUUID());
    assertTrue(second.sequenceNumber() > first.sequenceNumber());
  }

  @Test
  void expiry() {
    String inserted = newKey();
    COLLECTION.upsert(key, 1, expiresIn(SECOND));
    COLLECTION.insert(inserted, 1, InsertOptions.insertOptions().expiry(SECOND));
    untilGone(COLLECTION, key);
    untilGone(COLLECTION, inserted);
    COLLECTION.insert(inserted, 2);
    wantInt(COLLECTION, inserted, 2);
  }

  @Test
  void touch() {
    COLLECTION.upsert(key, 1);
    COLLECTION.touch(key, SECOND);
    untilGone(COLLECTION, key);
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.touch(key, SECOND));
  }

  @Test
  void getAndTouch() {
    COLLECTION.upsert(key, 1);
    assertEquals(1, COLLECTION.getAndTouch(key, SECOND).contentAs(Integer.class));
    untilGone(COLLECTION, key);
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.getAndTouch(key, SECOND));
  }

  @Test
  void preserveExpiry() {
    var withExpiry = GetOptions.getOptions().withExpiry(true);
    COLLECTION.upsert(key, 1, expiresIn(Duration.ofHours(1)));
    var expires = COLLECTION.get(key, withExpiry).expiryTime();
    assertTrue(expires.isPresent());
    COLLECTION.upsert(key, 2, UpsertOptions.upsertOptions().preserveExpiry(true));
    wantInt(COLLECTION, key, 2);
    assertEquals(expires, COLLECTION.get(key, withExpiry).expiryTime());
    COLLECTION.upsert(key, 3);
    assertTrue(COLLECTION.get(key, withExpiry).expiryTime().isEmpty());
  }

  @Test
  void counters() {
    var binary = COLLECTION.binary();
    assertThrows(DocumentNotFoundException.class, () -> binary.increment(key));
    var increment = IncrementOptions.incrementOptions();
    assertEquals(10, binary.increment(key, increment.initial(10)).content());
    assertEquals(15, binary.increment(key, IncrementOptions.incrementOptions().delta(5)).content());
    assertEquals(12, binary.decrement(key, DecrementOptions.decrementOptions().delta(3)).content());
    assertEquals(0, binary.decrement(key, DecrementOptions.decrementOptions().delta(100)).content());
    wantInt(COLLECTION, key, 0);

    String text = newKey();
    COLLECTION.upsert(text, "text");
    assertThrows(CouchbaseException.class, () -> binary.increment(text));
  }

  @Test
  void appendAndPrepend() {
    var binary = COLLECTION.binary();
    assertThrows(CouchbaseException.class, () -> binary.append(key, new byte[] {1}));
    putRaw("middle".getBytes(StandardCharsets.UTF_8));
    binary.append(key, "-end".getBytes(StandardCharsets.UTF_8));
    binary.prepend(key, "start-".getBytes(StandardCharsets.UTF_8));
    assertEquals("start-middle-end", new String(getRaw(), StandardCharsets.UTF_8));
  }

  @Test
  void appendToACompressedValue() {
    // Long and repetitive, so the SDK sends it compressed; the server must inflate before it appends.
    byte[] text = "compressible ".repeat(1_000).getBytes(StandardCharsets.UTF_8);
    putRaw(text);
    COLLECTION.binary().append(key, text);
    byte[] twice = Arrays.copyOf(text, text.length * 2);
    System.arraycopy(text, 0, twice, text.length, text.length);
    assertArrayEquals(twice, getRaw());
  }

  @Test
  void tooLarge() {
    byte[] tooLarge = random(LARGEST + 1);
    byte[] largest = Arrays.copyOf(tooLarge, LARGEST);
    putRaw(largest);
    assertThrows(ValueTooLargeException.class, () -> putRaw(tooLarge));
    assertThrows(ValueTooLargeException.class, () -> putRaw(new byte[LARGEST + 1]));
    assertArrayEquals(largest, getRaw());
    COLLECTION.remove(key);
  }

  @Test
  void tenThousandDocuments() {
    tenThousand(COLLECTION, key);
  }

  /** Stores, reads and removes that many documents, many at a time. */
  static void tenThousand(Collection collection, String key) {
    var reactive = collection.reactive();
    int count = 10_000;
    Flux.range(0, count)
        .flatMap(n -> reactive.upsert(key + n, JsonObject.create().put("n", n)), 200)
        .blockLast(Duration.ofSeconds(60));
    Long right =
        Flux.range(0, count)
            .flatMap(n -> reactive.get(key + n).map(read -> read.contentAsObject().getInt("n").equals(n)), 200)
            .filter(equal -> equal)
            .count()
            .block(Duration.ofSeconds(60));
    assertEquals(count, right);
    Flux.range(0, count)
        .flatMap(n -> reactive.remove(key + n), 200)
        .blockLast(Duration.ofSeconds(60));
    assertFalse(collection.exists(key + 0).exists());
  }
}
