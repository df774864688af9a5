import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test from 'node:test';
import couchbase from 'couchbase';
import { newKey, until, untilGone, wantContent } from './kedge.mjs';
import { shared } from './shared.mjs';

function newSettings(flushEnabled) {
  return { name: `b-${randomUUID().slice(0, 8)}`, ramQuotaMB: 100, flushEnabled, numReplicas: 0 };
}

test('create, use, flush, drop', async (t) => {
  const manager = shared.cluster.buckets();
  const settings = newSettings(true);
  await manager.createBucket(settings);
  await assert.rejects(manager.createBucket(settings), couchbase.BucketExistsError);
  const created = await manager.getBucket(settings.name);
  assert.equal(created.ramQuotaMB, 100);
  assert.equal(created.flushEnabled, true);
  const names = (await manager.getAllBuckets()).map((bucket) => bucket.name);
  assert.ok(names.includes(settings.name) && names.includes('default'), names.join());

  const key = newKey(t);
  const other = shared.cluster.bucket(settings.name).defaultCollection();
  await until('the bucket opens', () => other.upsert(key, 1).then(() => true, () => false));
  assert.equal((await shared.collection.exists(key)).exists, false);
  await manager.flushBucket(settings.name);
  await untilGone(other, key);
  await other.upsert(key, 2);
  await wantContent(other, key, 2);

  await manager.dropBucket(settings.name);
  await assert.rejects(manager.getBucket(settings.name), couchbase.BucketNotFoundError);
  await assert.rejects(manager.dropBucket(settings.name), couchbase.BucketNotFoundError);
});

test('flush must be enabled', async () => {
  const manager = shared.cluster.buckets();
  const settings = newSettings(false);
  await manager.createBucket(settings);
  await assert.rejects(manager.flushBucket(settings.name), couchbase.BucketNotFlushableError);
  await manager.updateBucket({ ...settings, flushEnabled: true, ramQuotaMB: 128 });
  const updated = await manager.getBucket(settings.name);
  assert.equal(updated.flushEnabled, true);
  assert.equal(updated.ramQuotaMB, 128);
  await manager.flushBucket(settings.name);
  await manager.dropBucket(settings.name);
});

test('settings are what was asked for', async () => {
  const manager = shared.cluster.buckets();
  const asked = {
    ...newSettings(false),
    ramQuotaMB: 101,
    numReplicas: 2,
    maxExpiry: 3600,
    compressionMode: 'active',
    evictionPolicy: 'fullEviction',
    minimumDurabilityLevel: couchbase.DurabilityLevel.Majority,
  };
  const check = async () => {
    const got = await manager.getBucket(asked.name);
    for (const [name, value] of Object.entries(asked)) {
      assert.equal(got[name], value, name);
    }
  };
  await manager.createBucket({ ...asked, conflictResolutionType: 'lww' });
  await check();
  Object.assign(asked, {
    ramQuotaMB: 102,
    flushEnabled: true,
    numReplicas: 1,
    maxExpiry: 7200,
    compressionMode: 'off',
    evictionPolicy: 'valueOnly',
    minimumDurabilityLevel: couchbase.DurabilityLevel.PersistToMajority,
  });
  await manager.updateBucket(asked);
  await check();
  await assert.rejects(manager.updateBucket({ ...asked, numReplicas: 4 }));
  await check();
  await manager.dropBucket(asked.name);
});
