package kedge;

import static kedge.Shared.CLUSTER;
import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static kedge.Shared.until;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.couchbase.client.core.error.CollectionExistsException;
import com.couchbase.client.core.error.CollectionNotFoundException;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.ScopeExistsException;
import com.couchbase.client.core.error.ScopeNotFoundException;
import com.couchbase.client.java.Bucket;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.manager.collection.CollectionManager;
import com.couchbase.client.java.manager.collection.CollectionSpec;
import com.couchbase.client.java.manager.collection.CreateCollectionSettings;
import com.couchbase.client.java.manager.collection.UpdateCollectionSettings;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class CollectionsTest {
  private final Bucket bucket = CLUSTER.bucket(KedgeServer.BUCKET);
  private final CollectionManager manager = bucket.collections();
  private final String scope = "s-" + newKey().substring(0, 8);

  @BeforeEach
  void create() {
    manager.createScope(scope);
  }

  @AfterEach
  void drop() {
    if (hasScope()) {
      manager.dropScope(scope);
    }
  }

  private boolean hasScope() {
    return manager.getAllScopes().stream().anyMatch(each -> each.name().equals(scope));
  }

  private Map<String, CollectionSpec> collections() {
    return manager.getAllScopes().stream()
        .filter(each -> each.name().equals(scope))
        .flatMap(each -> each.collections().stream())
        .collect(Collectors.toMap(CollectionSpec::name, each -> each));
  }

  private Collection make(String name) {
    manager.createCollection(scope, name);
    return bucket.scope(scope).collection(name);
  }

  @Test
  void createAndDrop() {
    assertThrows(ScopeExistsException.class, () -> manager.createScope(scope));
    assertEquals(Map.of(), collections());
    make("a");
    var tenMinutes = CreateCollectionSettings.createCollectionSettings().maxExpiry(Duration.ofMinutes(10));
    manager.createCollection(scope, "b", tenMinutes);
    assertThrows(CollectionExistsException.class, () -> make("a"));
    assertThrows(ScopeNotFoundException.class, () -> manager.createCollection(scope + "x", "a"));
    assertEquals(Duration.ofMinutes(10), collections().get("b").maxExpiry());
    var minute = UpdateCollectionSettings.updateCollectionSettings().maxExpiry(Duration.ofMinutes(1));
    manager.updateCollection(scope, "b", minute);
    assertEquals(Duration.ofMinutes(1), collections().get("b").maxExpiry());
    assertThrows(
        CollectionNotFoundException.class, () -> manager.updateCollection(scope, "c", minute));
    manager.dropCollection(scope, "a");
    assertThrows(CollectionNotFoundException.class, () -> manager.dropCollection(scope, "a"));
    assertEquals(List.of("b"), List.copyOf(collections().keySet()));
    manager.dropScope(scope);
    assertThrows(ScopeNotFoundException.class, () -> manager.dropScope(scope));
    assertFalse(hasScope());
  }

  /** The calls that programs for older versions of the SDK make. */
  @Test
  @SuppressWarnings("deprecation")
  void createAndDropBySpec() {
    var spec = CollectionSpec.create("c", scope, Duration.ofMinutes(5));
    manager.createCollection(spec);
    assertThrows(CollectionExistsException.class, () -> manager.createCollection(spec));
    assertEquals(Duration.ofMinutes(5), collections().get("c").maxExpiry());
    assertEquals(1, manager.getScope(scope).collections().size());
    manager.dropCollection(spec);
    assertThrows(CollectionNotFoundException.class, () -> manager.dropCollection(spec));
    assertEquals(0, manager.getScope(scope).collections().size());
    assertThrows(ScopeNotFoundException.class, () -> manager.getScope(scope + "x"));
  }

  @Test
  void documentsAreApart() {
    String key = newKey();
    var all = List.of(make("a"), make("b"), COLLECTION);
    for (int value = 0; value < all.size(); value++) {
      all.get(value).upsert(key, value);
    }
    for (int value = 0; value < all.size(); value++) {
      wantInt(all.get(value), key, value);
    }
    all.get(0).remove(key);
    var there = all.stream().map(each -> each.exists(key).exists()).toList();
    assertEquals(List.of(false, true, true), there);
  }

  @Test
  void unknownCollections() {
    var soon = GetOptions.getOptions().timeout(Duration.ofSeconds(2));
    for (String name : List.of(scope, scope + "x")) {
      var missing = bucket.scope(name).collection("none");
      assertThrows(CouchbaseException.class, () -> missing.get("key", soon));
    }
  }

  private static boolean isEmpty(Collection collection) {
    try {
      return !collection.exists("key").exists();
    } catch (CouchbaseException e) {
      return false;
    }
  }

  @Test
  void madeAnewItIsEmpty() {
    var a = make("a");
    for (int value = 0; value < 3; value++) {
      until("the new collection is used, and empty", () -> isEmpty(a));
      a.upsert("key", value);
      wantInt(a, "key", value);
      manager.dropCollection(scope, "a");
      make("a");
    }
  }
}
