// Range scans, prefix scans and samples.
import assert from 'node:assert/strict';
import test from 'node:test';
import couchbase from 'couchbase';
import { inParallel, newKey } from './kedge.mjs';
import { shared } from './shared.mjs';

const { MutationState, PrefixScan, RangeScan, SamplingScan, ScanTerm } = couchbase;
const COUNT = 100;

/** Stores documents whose keys begin with a prefix of their own. */
async function stored(t) {
  const prefix = `${newKey(t)}-`;
  const keys = Array.from({ length: COUNT }, (_, n) => `${prefix}${100 + n}`);
  await inParallel(COUNT, 20, (n) => shared.collection.upsert(keys[n], { n }));
  return { prefix, keys };
}

async function ids(type, options) {
  return (await shared.collection.scan(type, options)).map(({ id }) => id).sort();
}

test('scan of a prefix', async (t) => {
  const { prefix, keys } = await stored(t);
  const found = await shared.collection.scan(new PrefixScan(prefix));
  assert.deepEqual(found.map(({ id }) => id).sort(), keys);
  for (const { id, content, cas } of found) {
    assert.deepEqual(content, { n: keys.indexOf(id) });
    assert.equal(String(cas), String((await shared.collection.get(id)).cas));
  }
  assert.deepEqual(await ids(new PrefixScan('no such prefix')), []);
});

test('scan of ids only', async (t) => {
  const { prefix, keys } = await stored(t);
  const found = await shared.collection.scan(new PrefixScan(prefix), { idsOnly: true });
  assert.deepEqual(found.map(({ id }) => id).sort(), keys);
  assert.ok(found.every(({ content }) => content === undefined || content === null));
});

test('scan of a range in small batches', async (t) => {
  const { keys } = await stored(t);
  const range = new RangeScan(new ScanTerm(keys[10]), new ScanTerm(keys[19], true));
  assert.deepEqual(await ids(range, { batchItemLimit: 1, concurrency: 4 }), keys.slice(10, 19));
});

test('a scan sees what was written before', async (t) => {
  const { prefix, keys } = await stored(t);
  await shared.collection.remove(keys[3]);
  const { token } = await shared.collection.upsert(keys[4], { n: 400 });
  const consistentWith = new MutationState(token);
  assert.deepEqual(await ids(new PrefixScan(prefix), { consistentWith }), keys.toSpliced(3, 1));
});

test('scan of a sample', async (t) => {
  await stored(t);
  for (const idsOnly of [false, true]) {
    assert.equal(new Set(await ids(new SamplingScan(30, 7), { idsOnly })).size, 30);
  }
});
