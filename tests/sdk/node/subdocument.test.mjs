import assert from 'node:assert/strict';
import test from 'node:test';
import couchbase from 'couchbase';
import { newKey, wantContent } from './kedge.mjs';
import { shared } from './shared.mjs';

const { LookupInMacro, LookupInSpec, MutateInMacro, MutateInSpec, StoreSemantics } = couchbase;
const DOCUMENT = { name: 'a', tags: ['x', 'y'], address: { city: 'b' }, visits: 5 };

async function stored(t) {
  const key = newKey(t);
  await shared.collection.upsert(key, DOCUMENT);
  return key;
}

/** What the paths have; an error where there is none. */
async function lookup(key, specs, options) {
  const { content } = await shared.collection.lookupIn(key, specs, options);
  return content.map(({ error, value }) => error ?? value);
}

const attribute = (path) => LookupInSpec.get(path, { xattr: true });

test('lookup in', async (t) => {
  const key = await stored(t);
  const found = await lookup(key, [
    LookupInSpec.get('address.city'),
    LookupInSpec.get('tags[-1]'),
    LookupInSpec.exists('nothing'),
    LookupInSpec.count('tags'),
    LookupInSpec.get(''),
  ]);
  assert.deepEqual(found, ['b', 'y', false, 2, DOCUMENT]);
  const [missing, mismatch] = await lookup(key, [LookupInSpec.get('nothing'), LookupInSpec.get('name[0]')]);
  assert.ok(missing instanceof couchbase.PathNotFoundError);
  assert.ok(mismatch instanceof couchbase.PathMismatchError);
});

test('missing document', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  await assert.rejects(collection.lookupIn(key, [LookupInSpec.get('a')]), couchbase.DocumentNotFoundError);
  await assert.rejects(collection.mutateIn(key, [MutateInSpec.upsert('a', 1)]), couchbase.DocumentNotFoundError);
});

test('mutate in', async (t) => {
  const { collection } = shared;
  const key = await stored(t);
  const changed = await collection.mutateIn(key, [
    MutateInSpec.upsert('name', 'c'),
    MutateInSpec.insert('a.b.c', { d: 1 }, { createPath: true }),
    MutateInSpec.replace('address.city', 'e'),
    MutateInSpec.arrayAppend('tags', 'z'),
    MutateInSpec.arrayPrepend('tags', 'w'),
    MutateInSpec.arrayInsert('tags[1]', 'v'),
    MutateInSpec.arrayAddUnique('tags', 'u'),
    MutateInSpec.increment('visits', 3),
  ]);
  assert.equal(changed.content[7].value, 8);
  const after = await collection.get(key);
  assert.equal(String(after.cas), String(changed.cas));
  assert.deepEqual(after.content, {
    name: 'c',
    tags: ['w', 'v', 'x', 'y', 'z', 'u'],
    address: { city: 'e' },
    visits: 8,
    a: { b: { c: { d: 1 } } },
  });
  await collection.mutateIn(key, [
    MutateInSpec.remove('address'),
    MutateInSpec.remove('tags'),
    MutateInSpec.decrement('visits', 10),
    MutateInSpec.remove('a.b'),
  ]);
  await wantContent(collection, key, { name: 'c', visits: -2, a: {} });
});

test('nothing changes when one path fails', async (t) => {
  const { collection } = shared;
  const key = await stored(t);
  const name = MutateInSpec.upsert('name', 'c');
  const exists = collection.mutateIn(key, [name, MutateInSpec.insert('visits', 1)]);
  await assert.rejects(exists, couchbase.PathExistsError);
  const missing = collection.mutateIn(key, [name, MutateInSpec.replace('nothing', 1)]);
  await assert.rejects(missing, couchbase.PathNotFoundError);
  await wantContent(collection, key, DOCUMENT);
});

test('semantics and CAS', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  const set = (a, options) => collection.mutateIn(key, [MutateInSpec.upsert('a', a)], options);
  await set(1, { storeSemantics: StoreSemantics.Insert });
  await assert.rejects(set(2, { storeSemantics: StoreSemantics.Insert }), couchbase.DocumentExistsError);
  const { cas } = await set(3, { storeSemantics: StoreSemantics.Upsert });
  await set(4, { cas });
  await assert.rejects(set(5, { cas }), couchbase.CasMismatchError);
  await wantContent(collection, key, { a: 4 });
});

test('durable mutation', async (t) => {
  const key = await stored(t);
  const durabilityLevel = couchbase.DurabilityLevel.PersistToMajority;
  const changed = await shared.collection.mutateIn(key, [MutateInSpec.increment('visits', 1)], { durabilityLevel });
  assert.equal(changed.content[0].value, 6);
});

test('expiry of a mutation', async (t) => {
  const { collection } = shared;
  const key = await stored(t);
  const expiry = async () => (await collection.get(key, { withExpiry: true })).expiryTime;
  const set = (name, options) => collection.mutateIn(key, [MutateInSpec.upsert('name', name)], options);
  await set('c', { expiry: 3_600 });
  const expires = await expiry();
  assert.ok(expires > 0);
  await set('d', { preserveExpiry: true });
  assert.equal(await expiry(), expires);
  await set('e');
  assert.ok(!(await expiry()));
});

test('projection', async (t) => {
  const key = await stored(t);
  const { content } = await shared.collection.get(key, { project: ['name', 'address.city'] });
  assert.deepEqual(content, { name: 'a', address: { city: 'b' } });
});

test('attributes stay when the body is replaced', async (t) => {
  const { collection } = shared;
  const key = await stored(t);
  await collection.mutateIn(key, [
    MutateInSpec.upsert('meta.owner', 'me', { xattr: true, createPath: true }),
    MutateInSpec.upsert('name', 'c'),
  ]);
  await wantContent(collection, key, { ...DOCUMENT, name: 'c' });
  await collection.replace(key, {});
  assert.deepEqual(await lookup(key, [attribute('meta.owner')]), ['me']);
  await collection.mutateIn(key, [MutateInSpec.remove('meta', { xattr: true })]);
  assert.deepEqual(await lookup(key, [LookupInSpec.exists('meta', { xattr: true })]), [false]);
});

test('macros and virtual attributes', async (t) => {
  const { collection } = shared;
  const key = await stored(t);
  await collection.mutateIn(key, [
    MutateInSpec.upsert('stamp.cas', MutateInMacro.Cas, { xattr: true, createPath: true }),
    MutateInSpec.upsert('stamp.seqno', MutateInMacro.SeqNo, { xattr: true }),
    MutateInSpec.upsert('stamp.crc', MutateInMacro.ValueCrc32c, { xattr: true }),
  ]);
  const [stamp, document, deleted, bytes] = await lookup(key, [
    attribute('stamp'),
    attribute(LookupInMacro.Document),
    attribute(LookupInMacro.IsDeleted),
    attribute(LookupInMacro.ValueSizeBytes),
  ]);
  const reversed = Buffer.from(stamp.cas.slice(2), 'hex').reverse().toString('hex');
  assert.equal(`0x${reversed}`, document.CAS);
  assert.equal(stamp.seqno, document.seqno);
  assert.equal(stamp.crc, document.value_crc32c);
  assert.equal(deleted, false);
  assert.equal(bytes, JSON.stringify(DOCUMENT).length);
});

test('system attributes outlive their document', async (t) => {
  const { collection } = shared;
  const key = await stored(t);
  await collection.mutateIn(key, [
    MutateInSpec.upsert('_sys', 1, { xattr: true }),
    MutateInSpec.upsert('user', 2, { xattr: true }),
  ]);
  await collection.remove(key);
  await assert.rejects(collection.lookupIn(key, [attribute('_sys')]), couchbase.DocumentNotFoundError);
  const [system, user] = await lookup(key, [attribute('_sys'), attribute('user')], { accessDeleted: true });
  assert.equal(system, 1);
  assert.ok(user instanceof couchbase.PathNotFoundError);
});
