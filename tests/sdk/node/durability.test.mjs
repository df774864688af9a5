import assert from 'node:assert/strict';
import test from 'node:test';
import couchbase from 'couchbase';
import { inParallel, newKey, wantContent } from './kedge.mjs';
import { shared } from './shared.mjs';

const { Majority, MajorityAndPersistOnMaster, PersistToMajority } = couchbase.DurabilityLevel;

for (const durabilityLevel of [Majority, MajorityAndPersistOnMaster, PersistToMajority]) {
  const name = couchbase.DurabilityLevel[durabilityLevel];

  test(`every write at ${name}`, async (t) => {
    const { collection } = shared;
    const key = newKey(t);
    await collection.insert(key, 1, { durabilityLevel });
    await assert.rejects(collection.insert(key, 2, { durabilityLevel }), couchbase.DocumentExistsError);
    const stored = await collection.upsert(key, 3, { durabilityLevel });
    assert.ok(stored.token);
    const replaced = await collection.replace(key, 4, { durabilityLevel, cas: stored.cas });
    await assert.rejects(
      collection.replace(key, 5, { durabilityLevel, cas: stored.cas }),
      couchbase.CasMismatchError,
    );
    const read = await collection.get(key);
    assert.equal(read.content, 4);
    assert.equal(String(read.cas), String(replaced.cas));
    await collection.remove(key, { durabilityLevel });
    await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError);
  });

  test(`binary writes at ${name}`, async (t) => {
    const { collection } = shared;
    const counter = newKey(t);
    const options = { initial: 7, durabilityLevel };
    assert.equal((await collection.binary().increment(counter, 1, options)).value, 7);
    assert.equal((await collection.binary().increment(counter, 1, options)).value, 8);
    const text = newKey(t);
    await collection.upsert(text, Buffer.from('a'));
    await collection.binary().append(text, Buffer.from('b'), { durabilityLevel });
    assert.equal((await collection.get(text)).content.toString(), 'ab');
  });
}

test('durable writes in bulk', async (t) => {
  const prefix = newKey(t);
  await inParallel(1_000, 100, (n) =>
    shared.collection.upsert(`${prefix}-${n}`, n, { durabilityLevel: PersistToMajority }),
  );
  await wantContent(shared.collection, `${prefix}-999`, 999);
});
