// Users, groups and roles over the management API, and what a role lets its user do.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test from 'node:test';
import couchbase from 'couchbase';
import { BUCKET, connect, newKey, wantContent } from './kedge.mjs';
import { shared } from './shared.mjs';

const READER = { name: 'data_reader', bucket: BUCKET };

test('users and groups', async () => {
  const manager = shared.cluster.users();
  const user = `u-${randomUUID().slice(0, 8)}`;
  const group = `g-${user}`;
  await manager.upsertGroup({ name: group, description: 'may read', roles: [READER] });
  const stored = await manager.getGroup(group);
  assert.equal(stored.description, 'may read');
  assert.deepEqual(stored.roles.map(({ name, bucket }) => ({ name, bucket })), [READER]);
  assert.ok((await manager.getAllGroups()).some(({ name }) => name === group));

  await manager.upsertUser({ username: user, displayName: 'Ada', password: 'secret', groups: [group], roles: [] });
  const found = await manager.getUser(user);
  assert.equal(found.displayName, 'Ada');
  assert.deepEqual(found.groups, [group]);
  assert.ok(found.effectiveRoles.some(({ name }) => name === 'data_reader'));
  assert.ok((await manager.getAllUsers()).some(({ username }) => username === user));

  await manager.dropGroup(group);
  await assert.rejects(manager.getGroup(group), couchbase.GroupNotFoundError);
  assert.deepEqual((await manager.getUser(user)).groups, []);
  await manager.dropUser(user);
  await assert.rejects(manager.getUser(user), couchbase.UserNotFoundError);
  await assert.rejects(manager.dropUser(user), couchbase.UserNotFoundError);
});

test('roles are listed', async () => {
  const names = (await shared.cluster.users().getRoles()).map(({ name }) => name);
  for (const wanted of ['admin', 'data_reader', 'data_writer', 'scope_admin']) {
    assert.ok(names.includes(wanted), names.join());
  }
});

test('a reader reads and does not write', async (t) => {
  const manager = shared.cluster.users();
  const username = `u-${randomUUID().slice(0, 8)}`;
  const key = newKey(t);
  await shared.collection.upsert(key, 1);
  await manager.upsertUser({ username, password: 'secret', roles: [READER] });
  const own = await connect(shared.server, username, 'secret');
  try {
    const mine = own.bucket(BUCKET).defaultCollection();
    await wantContent(mine, key, 1);
    await assert.rejects(mine.upsert(key, 2), couchbase.CouchbaseError);
  } finally {
    await own.close();
    await manager.dropUser(username);
  }
  await wantContent(shared.collection, key, 1);
});

test('a user changes its own password', async (t) => {
  const manager = shared.cluster.users();
  const username = `u-${randomUUID().slice(0, 8)}`;
  const key = newKey(t);
  await shared.collection.upsert(key, 1);
  await manager.upsertUser({ username, displayName: 'Ada', password: 'secret', roles: [READER] });
  t.after(() => manager.dropUser(username));
  const before = await connect(shared.server, username, 'secret');
  await before.users().changePassword('other secret');
  await before.close();
  await assert.rejects(connect(shared.server, username, 'secret'), couchbase.AuthenticationFailureError);
  const after = await connect(shared.server, username, 'other secret');
  try {
    await wantContent(after.bucket(BUCKET).defaultCollection(), key, 1);
  } finally {
    await after.close();
  }
  const found = await manager.getUser(username);
  assert.equal(found.displayName, 'Ada');
  assert.deepEqual(found.roles.map(({ name }) => name), ['data_reader']);
});
