import assert from 'node:assert/strict';
import test from 'node:test';
import couchbase from 'couchbase';
import { newKey, newScope, until, wantContent } from './kedge.mjs';
import { shared } from './shared.mjs';

/** The collections of a scope by name; undefined without such a scope. */
async function collections(manager, scope) {
  const found = (await manager.getAllScopes()).find(({ name }) => name === scope);
  return found && Object.fromEntries(found.collections.map((each) => [each.name, each]));
}

test('create and drop collections', async (t) => {
  const { manager, scope } = await newScope(t, shared.bucket);
  await assert.rejects(manager.createScope(scope), couchbase.ScopeExistsError);
  assert.deepEqual(await collections(manager, scope), {});
  await manager.createCollection('a', scope);
  await manager.createCollection('b', scope, { maxExpiry: 600 });
  await assert.rejects(manager.createCollection('a', scope), couchbase.CollectionExistsError);
  await assert.rejects(manager.createCollection('a', `${scope}x`), couchbase.ScopeNotFoundError);
  const found = await collections(manager, scope);
  assert.deepEqual(Object.keys(found).sort(), ['a', 'b']);
  assert.equal(found.b.maxExpiry, 600);
  await manager.updateCollection('b', scope, { maxExpiry: 60 });
  assert.equal((await collections(manager, scope)).b.maxExpiry, 60);
  await assert.rejects(manager.updateCollection('c', scope, { maxExpiry: 60 }), couchbase.CollectionNotFoundError);
  await manager.dropCollection('a', scope);
  await assert.rejects(manager.dropCollection('a', scope), couchbase.CollectionNotFoundError);
  await manager.dropScope(scope);
  await assert.rejects(manager.dropScope(scope), couchbase.ScopeNotFoundError);
  assert.equal(await collections(manager, scope), undefined);
});

test('documents of collections are apart', async (t) => {
  const { manager, scope } = await newScope(t, shared.bucket);
  for (const name of ['a', 'b']) {
    await manager.createCollection(name, scope);
  }
  const key = newKey(t);
  const of = (name) => shared.bucket.scope(scope).collection(name);
  const all = [of('a'), of('b'), shared.collection];
  for (const [value, where] of all.entries()) {
    await where.upsert(key, value);
  }
  for (const [value, where] of all.entries()) {
    await wantContent(where, key, value);
  }
  await all[0].remove(key);
  const there = await Promise.all(all.map(async (where) => (await where.exists(key)).exists));
  assert.deepEqual(there, [false, true, true]);
});

test('unknown collections', async (t) => {
  const { scope } = await newScope(t, shared.bucket);
  for (const name of [scope, `${scope}x`]) {
    const missing = shared.bucket.scope(name).collection('none');
    await assert.rejects(missing.get('key', { timeout: 2_000 }), couchbase.CouchbaseError);
  }
});

test('a collection that is made anew is empty', async (t) => {
  const { manager, scope } = await newScope(t, shared.bucket);
  await manager.createCollection('a', scope);
  const a = shared.bucket.scope(scope).collection('a');
  for (let value = 0; value < 3; value++) {
    const isEmpty = () => a.exists('key').then(({ exists }) => !exists, () => false);
    await until('the new collection is used, and empty', isEmpty);
    await a.upsert('key', value);
    await wantContent(a, 'key', value);
    await manager.dropCollection('a', scope);
    await manager.createCollection('a', scope);
  }
});
