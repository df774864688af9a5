package kedge;

import static kedge.Shared.COLLECTION;
import static kedge.Shared.newKey;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.subdoc.PathExistsException;
import com.couchbase.client.core.error.subdoc.PathMismatchException;
import com.couchbase.client.core.error.subdoc.PathNotFoundException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.LookupInMacro;
import com.couchbase.client.java.kv.LookupInOptions;
import com.couchbase.client.java.kv.LookupInResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInMacro;
import com.couchbase.client.java.kv.MutateInOptions;
import com.couchbase.client.java.kv.MutateInResult;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.StoreSemantics;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class SubdocumentTest {
  private static final String DOCUMENT =
      "{\"name\":\"a\",\"tags\":[\"x\",\"y\"],\"address\":{\"city\":\"b\"},\"visits\":5}";

  private final String key = newKey();

  private static MutateInOptions options() {
    return MutateInOptions.mutateInOptions();
  }

  private void store() {
    COLLECTION.upsert(key, JsonObject.fromJson(DOCUMENT));
  }

  private JsonObject read() {
    return COLLECTION.get(key).contentAsObject();
  }

  private LookupInResult lookup(LookupInSpec... specs) {
    return COLLECTION.lookupIn(key, List.of(specs));
  }

  private LookupInResult lookupDeleted(LookupInSpec... specs) {
    var deleted = LookupInOptions.lookupInOptions().accessDeleted(true);
    return COLLECTION.lookupIn(key, List.of(specs), deleted);
  }

  private MutateInResult mutate(MutateInOptions options, MutateInSpec... specs) {
    return COLLECTION.mutateIn(key, List.of(specs), options);
  }

  private static LookupInSpec attribute(String path) {
    return LookupInSpec.get(path).xattr();
  }

  @Test
  void lookupIn() {
    store();
    var found =
        lookup(
            LookupInSpec.get("address.city"),
            LookupInSpec.get("tags[-1]"),
            LookupInSpec.exists("nothing"),
            LookupInSpec.count("tags"),
            LookupInSpec.get(""),
            LookupInSpec.get("nothing"),
            LookupInSpec.get("name[0]"));
    assertEquals("b", found.contentAs(0, String.class));
    assertEquals("y", found.contentAs(1, String.class));
    assertFalse(found.exists(2));
    assertEquals(2, found.contentAs(3, Integer.class));
    assertEquals(JsonObject.fromJson(DOCUMENT), found.contentAsObject(4));
    assertThrows(PathNotFoundException.class, () -> found.contentAs(5, String.class));
    assertThrows(PathMismatchException.class, () -> found.contentAs(6, String.class));
    assertEquals(COLLECTION.get(key).cas(), found.cas());
  }

  @Test
  void missingDocument() {
    assertThrows(DocumentNotFoundException.class, () -> lookup(LookupInSpec.get("a")));
    assertThrows(
        DocumentNotFoundException.class, () -> mutate(options(), MutateInSpec.upsert("a", 1)));
  }

  @Test
  void mutateIn() {
    store();
    var changed =
        mutate(
            options(),
            MutateInSpec.upsert("name", "c"),
            MutateInSpec.insert("a.b.c", 1).createPath(),
            MutateInSpec.replace("address.city", "e"),
            MutateInSpec.arrayAppend("tags", List.of("z")),
            MutateInSpec.arrayPrepend("tags", List.of("v", "w")),
            MutateInSpec.arrayInsert("tags[1]", List.of("i")),
            MutateInSpec.arrayAddUnique("tags", "u"),
            MutateInSpec.increment("visits", 3));
    assertEquals(8, changed.contentAs(7, Integer.class));
    var expected =
        "{\"name\":\"c\",\"tags\":[\"v\",\"i\",\"w\",\"x\",\"y\",\"z\",\"u\"],"
            + "\"address\":{\"city\":\"e\"},\"visits\":8,\"a\":{\"b\":{\"c\":1}}}";
    assertEquals(JsonObject.fromJson(expected), read());
    assertEquals(changed.cas(), COLLECTION.get(key).cas());
    mutate(
        options(),
        MutateInSpec.remove("address"),
        MutateInSpec.remove("tags"),
        MutateInSpec.decrement("visits", 10),
        MutateInSpec.remove("a.b"));
    assertEquals(JsonObject.fromJson("{\"name\":\"c\",\"visits\":-2,\"a\":{}}"), read());
  }

  @Test
  void nothingChangesWhenOnePathFails() {
    store();
    var name = MutateInSpec.upsert("name", "c");
    assertThrows(
        PathExistsException.class, () -> mutate(options(), name, MutateInSpec.insert("visits", 1)));
    assertThrows(
        PathNotFoundException.class,
        () -> mutate(options(), name, MutateInSpec.replace("nothing", 1)));
    assertEquals(JsonObject.fromJson(DOCUMENT), read());
  }

  @Test
  void semanticsAndCas() {
    var insert = options().storeSemantics(StoreSemantics.INSERT);
    mutate(insert, MutateInSpec.upsert("a", 1));
    assertThrows(
        DocumentExistsException.class, () -> mutate(insert, MutateInSpec.upsert("a", 2)));
    var upsert = options().storeSemantics(StoreSemantics.UPSERT);
    var first = mutate(upsert, MutateInSpec.upsert("a", 3));
    var cas = options().cas(first.cas());
    mutate(cas, MutateInSpec.upsert("a", 4));
    assertThrows(CasMismatchException.class, () -> mutate(cas, MutateInSpec.upsert("a", 5)));
    assertEquals(4, read().getInt("a"));
  }

  @Test
  void durableMutation() {
    store();
    var durable = options().durability(DurabilityLevel.PERSIST_TO_MAJORITY);
    var changed = mutate(durable, MutateInSpec.increment("visits", 1));
    assertEquals(6, changed.contentAs(0, Integer.class));
    assertEquals(6, read().getInt("visits"));
  }

  @Test
  void expiry() {
    store();
    var withExpiry = GetOptions.getOptions().withExpiry(true);
    mutate(options().expiry(Duration.ofHours(1)), MutateInSpec.upsert("name", "c"));
    var expires = COLLECTION.get(key, withExpiry).expiryTime();
    assertTrue(expires.isPresent());
    mutate(options().preserveExpiry(true), MutateInSpec.upsert("name", "d"));
    assertEquals(expires, COLLECTION.get(key, withExpiry).expiryTime());
    mutate(options(), MutateInSpec.upsert("name", "e"));
    assertTrue(COLLECTION.get(key, withExpiry).expiryTime().isEmpty());
  }

  @Test
  void projection() {
    store();
    var found = COLLECTION.get(key, GetOptions.getOptions().project("name", "address.city"));
    var expected = JsonObject.fromJson("{\"name\":\"a\",\"address\":{\"city\":\"b\"}}");
    assertEquals(expected, found.contentAsObject());
  }

  @Test
  void attributesStayWhenTheBodyIsReplaced() {
    store();
    mutate(
        options(),
        MutateInSpec.upsert("meta.owner", "me").xattr().createPath(),
        MutateInSpec.upsert("name", "c"));
    assertFalse(read().containsKey("meta"));
    COLLECTION.replace(key, JsonObject.create());
    assertEquals("me", lookup(attribute("meta.owner")).contentAs(0, String.class));
    mutate(options(), MutateInSpec.remove("meta").xattr());
    assertFalse(lookup(LookupInSpec.exists("meta").xattr()).exists(0));
  }

  @Test
  void macrosAndVirtualAttributes() {
    store();
    var changed =
        mutate(
            options(),
            MutateInSpec.upsert("stamp.cas", MutateInMacro.CAS).xattr().createPath(),
            MutateInSpec.upsert("stamp.seqno", MutateInMacro.SEQ_NO).xattr(),
            MutateInSpec.upsert("stamp.crc", MutateInMacro.VALUE_CRC_32C).xattr());
    var found =
        lookup(
            attribute("stamp"),
            attribute(LookupInMacro.DOCUMENT),
            attribute(LookupInMacro.CAS),
            attribute(LookupInMacro.IS_DELETED),
            attribute(LookupInMacro.VALUE_SIZE_BYTES));
    var stamp = found.contentAsObject(0);
    var document = found.contentAsObject(1);
    long little = Long.parseUnsignedLong(stamp.getString("cas").substring(2), 16);
    assertEquals(changed.cas(), Long.reverseBytes(little));
    assertEquals(document.getString("seqno"), stamp.getString("seqno"));
    assertEquals(document.getString("value_crc32c"), stamp.getString("crc"));
    String cas = found.contentAs(2, String.class);
    assertEquals(changed.cas(), Long.parseUnsignedLong(cas.substring(2), 16));
    assertFalse(found.contentAs(3, Boolean.class));
    assertEquals(DOCUMENT.length(), found.contentAs(4, Integer.class));
  }

  @Test
  void documentsThatAreCreatedAsDeletedComeToLife() {
    var staged =
        options()
            .storeSemantics(StoreSemantics.INSERT)
            .accessDeleted(true)
            .createAsDeleted(true);
    mutate(staged, MutateInSpec.upsert("txn.id", 1).xattr().createPath());
    assertThrows(DocumentNotFoundException.class, () -> COLLECTION.get(key));
    assertThrows(DocumentNotFoundException.class, () -> lookup(attribute("txn.id")));
    var found = lookupDeleted(attribute("txn.id"));
    assertEquals(1, found.contentAs(0, Integer.class));
    assertTrue(found.isDeleted());
    mutate(
        options().storeSemantics(StoreSemantics.REVIVE).accessDeleted(true),
        MutateInSpec.remove("txn").xattr(),
        MutateInSpec.replace("", JsonObject.fromJson(DOCUMENT)));
    assertEquals(JsonObject.fromJson(DOCUMENT), read());
  }

  @Test
  void systemAttributesOutliveTheirDocument() {
    store();
    mutate(
        options(),
        MutateInSpec.upsert("_sys", 1).xattr(),
        MutateInSpec.upsert("user", 2).xattr());
    COLLECTION.remove(key);
    var found = lookupDeleted(attribute("_sys"), attribute("user"));
    assertEquals(1, found.contentAs(0, Integer.class));
    assertThrows(PathNotFoundException.class, () -> found.contentAs(1, Integer.class));
  }
}
