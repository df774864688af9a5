import assert from 'node:assert/strict';
import test from 'node:test';
import couchbase from 'couchbase';
import { Cluster } from './cluster.mjs';
import { BUCKET, connect, inParallel, until, wantContent } from './kedge.mjs';
import { LEVELS, hasAll, pathsOnReplicas } from './replicas.mjs';

const COUNT = 200;

/** Runs `work` with a cluster whose other nodes are all replicas, and with its collection. */
async function withNodes(count, work) {
  const nodes = await Cluster.start(count, count - 1);
  let cluster;
  try {
    cluster = await connect(nodes);
    await work(nodes, cluster.bucket(BUCKET).defaultCollection());
  } finally {
    await cluster?.close();
    await nodes.remove();
  }
}

for (const count of [2, 3]) {
  test(`durable writes and replica reads on ${count} nodes`, () =>
    withNodes(count, async (_, collection) => {
      for (const durabilityLevel of LEVELS) {
        const key = (n) => `${durabilityLevel}-${n}`;
        await inParallel(COUNT, 20, (n) => collection.upsert(key(n), n, { durabilityLevel }));
        for (let n = 0; n < 20; n++) {
          await until(`${key(n)} is everywhere`, () => hasAll(collection, key(n), n, count));
          assert.equal((await collection.getAnyReplica(key(n))).content, n);
        }
      }
      await assert.rejects(collection.getAnyReplica('nothing'), couchbase.DocumentUnretrievableError);
      await pathsOnReplicas(collection, 'paths', count);
      // Each node scans its vBuckets.
      const found = await collection.scan(new couchbase.RangeScan(), { idsOnly: true });
      const wanted = LEVELS.flatMap((level) => Array.from({ length: COUNT }, (_, n) => `${level}-${n}`));
      assert.deepEqual(found.map(({ id }) => id).sort(), [...wanted, 'paths'].sort());
    }));
}

test('the client goes on through a failover', () =>
  withNodes(3, async (nodes, collection) => {
    const key = (n) => `key-${n}`;
    await inParallel(COUNT, 20, (n) => collection.upsert(key(n), n, { durabilityLevel: LEVELS[0] }));
    nodes.failOver(2);
    for (let n = 0; n < COUNT; n++) {
      await until(`${key(n)} is found at another node`, async () => {
        const read = collection.get(key(n), { timeout: 1_000 });
        return (await read.catch(() => undefined))?.content === n;
      });
    }
    for (const durabilityLevel of LEVELS) {
      for (let n = 0; n < 50; n++) {
        await collection.upsert(key(n), n + COUNT, { durabilityLevel });
        await wantContent(collection, key(n), n + COUNT);
      }
    }
  }));
