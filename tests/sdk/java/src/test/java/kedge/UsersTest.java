package kedge;

import static kedge.Shared.CLUSTER;
import static kedge.Shared.COLLECTION;
import static kedge.Shared.SERVER;
import static kedge.Shared.newKey;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.GroupNotFoundException;
import com.couchbase.client.core.error.UserNotFoundException;
import com.couchbase.client.core.retry.FailFastRetryStrategy;
import com.couchbase.client.java.kv.UpsertOptions;
import com.couchbase.client.java.manager.user.AuthDomain;
import com.couchbase.client.java.manager.user.Group;
import com.couchbase.client.java.manager.user.Role;
import com.couchbase.client.java.manager.user.User;
import com.couchbase.client.java.manager.user.UserManager;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Users, groups and roles over the management API, and what a role lets its user do. */
class UsersTest {
  private static final Role READER = new Role("data_reader", KedgeServer.BUCKET);

  private final UserManager manager = CLUSTER.users();
  private final String name = "u-" + newKey().substring(0, 8);

  @AfterEach
  void drop() {
    boolean isThere =
        manager.getAllUsers().stream().anyMatch(found -> found.user().username().equals(name));
    if (isThere) {
      manager.dropUser(name);
    }
  }

  @Test
  void usersAndGroups() {
    String group = "g-" + name;
    manager.upsertGroup(new Group(group).description("may read").roles(READER));
    assertEquals("may read", manager.getGroup(group).description());
    assertEquals(Set.of(READER), manager.getGroup(group).roles());
    assertTrue(manager.getAllGroups().stream().anyMatch(found -> found.name().equals(group)));
    manager.upsertUser(new User(name).displayName("Ada").password("secret").groups(group));
    var found = manager.getUser(AuthDomain.LOCAL, name);
    assertEquals("Ada", found.user().displayName());
    assertEquals(Set.of(group), found.user().groups());
    assertTrue(found.effectiveRoles().contains(READER), found::toString);
    manager.dropGroup(group);
    assertThrows(GroupNotFoundException.class, () -> manager.getGroup(group));
    assertTrue(manager.getUser(AuthDomain.LOCAL, name).user().groups().isEmpty());
    manager.dropUser(name);
    assertThrows(UserNotFoundException.class, () -> manager.getUser(AuthDomain.LOCAL, name));
    assertThrows(UserNotFoundException.class, () -> manager.dropUser(name));
  }

  @Test
  void rolesAreListed() {
    var names =
        manager.getRoles().stream().map(found -> found.role().name()).collect(Collectors.toSet());
    assertTrue(names.containsAll(Set.of("admin", "data_reader", "data_writer")), names::toString);
  }

  @Test
  void aUserChangesItsOwnPassword() {
    String key = newKey();
    COLLECTION.upsert(key, 1);
    manager.upsertUser(new User(name).displayName("Ada").password("secret").roles(READER));
    try (var before = Shared.connect(SERVER, name, "secret")) {
      before.users().changePassword("other secret");
    }
    var wrong = Shared.connect(SERVER, name, "secret");
    ConnectTest.wantRefusal(wrong, KedgeServer.BUCKET, "SaslAuthenticationFailed");
    try (var after = Shared.connect(SERVER, name, "other secret")) {
      wantInt(Shared.open(after, KedgeServer.BUCKET), key, 1);
    }
    var found = manager.getUser(AuthDomain.LOCAL, name).user();
    assertEquals("Ada", found.displayName());
    assertEquals(Set.of(READER), found.roles());
  }

  @Test
  void aReaderReadsAndDoesNotWrite() {
    String key = newKey();
    COLLECTION.upsert(key, 1);
    manager.upsertUser(new User(name).password("secret").roles(READER));
    var own = Shared.connect(SERVER, name, "secret");
    try {
      var mine = Shared.open(own, KedgeServer.BUCKET);
      wantInt(mine, key, 1);
      var options = UpsertOptions.upsertOptions().retryStrategy(FailFastRetryStrategy.INSTANCE);
      assertThrows(CouchbaseException.class, () -> mine.upsert(key, 2, options));
    } finally {
      own.disconnect();
    }
    wantInt(COLLECTION, key, 1);
  }
}
