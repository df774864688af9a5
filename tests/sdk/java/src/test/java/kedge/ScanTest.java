package kedge;

import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.kv.ScanOptions;
import com.couchbase.client.java.kv.ScanResult;
import com.couchbase.client.java.kv.ScanTerm;
import com.couchbase.client.java.kv.ScanType;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ScanTest {
  private static final int COUNT = 50;

  private final String prefix = "scan-" + newKey() + "-";
  private final List<String> keys = new ArrayList<>();

  @BeforeEach
  void store() {
    for (int n = 0; n < COUNT; n++) {
      String key = prefix + (100 + n);
      COLLECTION.upsert(key, n);
      keys.add(key);
    }
  }

  private static List<String> ids(ScanType type, ScanOptions options) {
    return COLLECTION.scan(type, options).map(ScanResult::id).sorted().toList();
  }

  private static ScanOptions options() {
    return ScanOptions.scanOptions();
  }

  @Test
  void ofAPrefix() {
    var found =
        COLLECTION
            .scan(ScanType.prefixScan(prefix))
            .collect(Collectors.toMap(ScanResult::id, result -> result));
    assertEquals(COUNT, found.size());
    for (int n = 0; n < COUNT; n++) {
      var result = found.get(keys.get(n));
      assertEquals(n, result.contentAs(Integer.class));
      assertEquals(COLLECTION.get(keys.get(n)).cas(), result.cas());
    }
    assertEquals(List.of(), ids(ScanType.prefixScan("no such prefix"), options()));
  }

  @Test
  void ofIdsOnly() {
    var found = COLLECTION.scan(ScanType.prefixScan(prefix), options().idsOnly(true)).toList();
    assertTrue(found.stream().allMatch(ScanResult::idOnly));
    assertEquals(keys, found.stream().map(ScanResult::id).sorted().toList());
  }

  @Test
  void ofARangeInSmallBatches() {
    var type =
        ScanType.rangeScan(ScanTerm.inclusive(keys.get(10)), ScanTerm.exclusive(keys.get(19)));
    assertEquals(keys.subList(10, 19), ids(type, options().batchItemLimit(1)));
  }

  @Test
  void seesWhatWasWrittenBefore() {
    COLLECTION.remove(keys.get(3));
    var stored = COLLECTION.upsert(keys.get(4), 400);
    var state = MutationState.from(stored.mutationToken().orElseThrow());
    var found = ids(ScanType.prefixScan(prefix), options().consistentWith(state));
    keys.remove(3);
    assertEquals(keys, found);
  }

  @Test
  void ofASample() {
    for (boolean idsOnly : new boolean[] {false, true}) {
      var found = ids(ScanType.samplingScan(20, 7), options().idsOnly(idsOnly));
      assertEquals(20, found.stream().distinct().count());
    }
  }
}
