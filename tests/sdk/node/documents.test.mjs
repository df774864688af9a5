import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test from 'node:test';
import couchbase from 'couchbase';
import { newKey, tenThousand, until, untilGone, wantContent } from './kedge.mjs';
import { shared } from './shared.mjs';

const LARGEST = 20 * 1024 * 1024;
// Longer than what waits for it to end: no lock here ends by itself but the one that says so.
const LOCK_S = 30;

test('JSON values', async (t) => {
  for (const value of [{ a: [1, 2.5, null, true, 'ä\u0000'] }, [], 'text', 0, -1.5, true, null]) {
    const key = newKey(t);
    await shared.collection.upsert(key, value);
    await wantContent(shared.collection, key, value);
  }
});

test('binary values', async (t) => {
  for (const value of [Buffer.alloc(0), Buffer.alloc(2000, '\0\xff', 'latin1'), randomBytes(100_000)]) {
    const key = newKey(t);
    await shared.collection.upsert(key, value);
    const { content } = await shared.collection.get(key);
    assert.ok(Buffer.isBuffer(content) && content.equals(value), `${value.length} bytes`);
  }
});

test('insert, replace, remove', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError);
  await assert.rejects(collection.replace(key, 0), couchbase.DocumentNotFoundError);
  await assert.rejects(collection.remove(key), couchbase.DocumentNotFoundError);
  await collection.insert(key, 1);
  await assert.rejects(collection.insert(key, 2), couchbase.DocumentExistsError);
  await collection.replace(key, 3);
  await wantContent(collection, key, 3);
  await collection.remove(key);
  await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError);
});

test('exists', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  assert.equal((await collection.exists(key)).exists, false);
  const stored = await collection.upsert(key, 1);
  const found = await collection.exists(key);
  assert.equal(found.exists, true);
  assert.equal(String(found.cas), String(stored.cas));
  await collection.remove(key);
  assert.equal((await collection.exists(key)).exists, false);
});

test('CAS conflicts', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  const first = (await collection.upsert(key, 1)).cas;
  const second = (await collection.replace(key, 2, { cas: first })).cas;
  assert.notEqual(String(first), String(second));
  await assert.rejects(collection.replace(key, 3, { cas: first }), couchbase.CasMismatchError);
  await assert.rejects(collection.remove(key, { cas: first }), couchbase.CasMismatchError);
  await wantContent(collection, key, 2);
  await collection.remove(key, { cas: second });
  assert.equal((await collection.exists(key)).exists, false);
});

test('mutation tokens', async (t) => {
  const key = newKey(t);
  const first = (await shared.collection.upsert(key, 1)).token.toJSON();
  const second = (await shared.collection.upsert(key, 2)).token.toJSON();
  assert.equal(first.bucket_name, 'default');
  assert.equal(first.partition_id, second.partition_id);
  assert.equal(String(first.partition_uuid), String(second.partition_uuid));
  assert.ok(BigInt(second.sequence_number) > BigInt(first.sequence_number));
});

test('expiry', async (t) => {
  const { collection } = shared;
  const upserted = newKey(t);
  const inserted = newKey(t);
  await collection.upsert(upserted, 1, { expiry: 1 });
  await collection.insert(inserted, 1, { expiry: 1 });
  await untilGone(collection, upserted);
  await untilGone(collection, inserted);
  await collection.insert(inserted, 2);
  await wantContent(collection, inserted, 2);
});

test('touch', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  await collection.upsert(key, 1);
  await collection.touch(key, 1);
  await untilGone(collection, key);
  await assert.rejects(collection.touch(key, 1), couchbase.DocumentNotFoundError);
});

test('get and touch', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  await collection.upsert(key, 'value');
  assert.equal((await collection.getAndTouch(key, 1)).content, 'value');
  await untilGone(collection, key);
  await assert.rejects(collection.getAndTouch(key, 1), couchbase.DocumentNotFoundError);
});

test('preserve expiry', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  const expiry = async () => (await collection.get(key, { withExpiry: true })).expiryTime;
  await collection.upsert(key, 1, { expiry: 3_600 });
  const expires = await expiry();
  assert.ok(expires > 0);
  await collection.upsert(key, 2, { preserveExpiry: true });
  await wantContent(collection, key, 2);
  assert.equal(await expiry(), expires);
  await collection.upsert(key, 3);
  assert.ok(!(await expiry()));
});

test('counters', async (t) => {
  const { collection } = shared;
  const binary = collection.binary();
  const key = newKey(t);
  await assert.rejects(binary.increment(key, 1), couchbase.DocumentNotFoundError);
  assert.equal((await binary.increment(key, 1, { initial: 10 })).value, 10);
  assert.equal((await binary.increment(key, 5)).value, 15);
  assert.equal((await binary.decrement(key, 3)).value, 12);
  assert.equal((await binary.decrement(key, 100)).value, 0);
  await wantContent(collection, key, 0);

  const text = newKey(t);
  await collection.upsert(text, 'text');
  await assert.rejects(binary.increment(text, 1), couchbase.CouchbaseError);
});

test('append and prepend', async (t) => {
  const { collection } = shared;
  const binary = collection.binary();
  const key = newKey(t);
  await assert.rejects(binary.append(key, Buffer.from('x')), couchbase.CouchbaseError);
  await collection.upsert(key, Buffer.from('middle'));
  await binary.append(key, Buffer.from('-end'));
  await binary.prepend(key, Buffer.from('start-'));
  assert.equal((await collection.get(key)).content.toString(), 'start-middle-end');
});

test('what the client compresses', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  const text = Buffer.from('compressible '.repeat(1_000));
  await collection.upsert(key, text);
  const datatype = couchbase.LookupInSpec.get('$document.datatype', { xattr: true });
  assert.deepEqual((await collection.lookupIn(key, [datatype])).content[0].value, ['snappy']);
  // The server inflates it before it appends.
  await collection.binary().append(key, text);
  assert.ok((await collection.get(key)).content.equals(Buffer.concat([text, text])));
});

test('too large', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  const random = randomBytes(LARGEST + 1);
  const largest = random.subarray(0, LARGEST);
  await collection.upsert(key, largest);
  await assert.rejects(collection.upsert(key, random), couchbase.ValueTooLargeError);
  assert.ok((await collection.get(key)).content.equals(largest));
  await collection.remove(key);
});

test('ten thousand documents', (t) => tenThousand(shared.collection, newKey(t)));

test('locks', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  const stored = await collection.upsert(key, 1);
  await assert.rejects(collection.unlock(key, stored.cas), couchbase.DocumentNotLockedError);
  await assert.rejects(collection.getAndLock(newKey(t), LOCK_S), couchbase.DocumentNotFoundError);

  const locked = await collection.getAndLock(key, LOCK_S);
  await wantContent(collection, key, 1);
  // The SDK tries again for as long as the document is locked, so what ends the attempt is its timeout.
  await assert.rejects(collection.upsert(key, 2, { timeout: 1_000 }), isLockedOrTimeout);
  await assert.rejects(collection.getAndLock(key, LOCK_S, { timeout: 1_000 }), isLockedOrTimeout);
  await assert.rejects(collection.unlock(key, stored.cas, { timeout: 1_000 }), couchbase.CouchbaseError);
  await wantContent(collection, key, 1);

  await collection.unlock(key, locked.cas);
  await collection.upsert(key, 3);
  await wantContent(collection, key, 3);
});

function isLockedOrTimeout(error) {
  return error instanceof couchbase.DocumentLockedError || error instanceof couchbase.TimeoutError;
}

test('a write with the CAS of the lock unlocks', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  await collection.upsert(key, 1);
  const locked = await collection.getAndLock(key, LOCK_S);
  await collection.replace(key, 2, { cas: locked.cas });
  await collection.upsert(key, 3, { timeout: 10_000 });
});

test('a lock ends by itself', async (t) => {
  const { collection } = shared;
  const key = newKey(t);
  await collection.upsert(key, 1);
  await collection.getAndLock(key, 1);
  await until('the lock ends', () => collection.upsert(key, 2).then(() => true, () => false));
  await wantContent(collection, key, 2);
});
