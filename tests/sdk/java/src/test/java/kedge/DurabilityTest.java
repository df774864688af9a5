package kedge;

import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.kv.AppendOptions;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.IncrementOptions;
import com.couchbase.client.java.kv.InsertOptions;
import com.couchbase.client.java.kv.RemoveOptions;
import com.couchbase.client.java.kv.ReplaceOptions;
import com.couchbase.client.java.kv.UpsertOptions;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.publisher.Flux;

class DurabilityTest {
  private final String key = newKey();

  @ParameterizedTest
  @EnumSource(value = DurabilityLevel.class, mode = EnumSource.Mode.EXCLUDE, names = "NONE")
  void everyWrite(DurabilityLevel level) {
    var insert = InsertOptions.insertOptions().durability(level);
    COLLECTION.insert(key, 1, insert);
    assertThrows(DocumentExistsException.class, () -> COLLECTION.insert(key, 2, insert));
    var stored = COLLECTION.upsert(key, 3, UpsertOptions.upsertOptions().durability(level));
    assertTrue(stored.mutationToken().isPresent());
    var replace = ReplaceOptions.replaceOptions().durability(level).cas(stored.cas());
    var replaced = COLLECTION.replace(key, 4, replace);
    assertThrows(CasMismatchException.class, () -> COLLECTION.replace(key, 5, replace));
    wantInt(COLLECTION, key, 4);
    assertEquals(replaced.cas(), COLLECTION.get(key).cas());
    COLLECTION.remove(key, RemoveOptions.removeOptions().durability(level));
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.get(key));
  }

  @ParameterizedTest
  @EnumSource(value = DurabilityLevel.class, mode = EnumSource.Mode.EXCLUDE, names = "NONE")
  void binaryWrites(DurabilityLevel level) {
    for (long wanted : new long[] {7, 8}) {
      var options = IncrementOptions.incrementOptions().initial(7).durability(level);
      assertEquals(wanted, COLLECTION.binary().increment(key, options).content());
    }
    String text = newKey();
    var raw = RawBinaryTranscoder.INSTANCE;
    COLLECTION.upsert(text, new byte[] {1}, UpsertOptions.upsertOptions().transcoder(raw));
    COLLECTION.binary().append(text, new byte[] {2}, AppendOptions.appendOptions().durability(level));
    var read = COLLECTION.get(text, GetOptions.getOptions().transcoder(raw));
    assertEquals(2, read.contentAsBytes().length);
  }

  @Test
  void bulk() {
    var options = UpsertOptions.upsertOptions().durability(DurabilityLevel.PERSIST_TO_MAJORITY);
    var reactive = COLLECTION.reactive();
    Flux.range(0, 1_000)
        .flatMap(n -> reactive.upsert(key + n, n, options), 100)
        .blockLast(Duration.ofSeconds(60));
    wantInt(COLLECTION, key + 999, 999);
  }
}
