// What is done with documents of named collections, on one node and on two.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import couchbase from 'couchbase';
import { Cluster } from './cluster.mjs';
import { BUCKET, Server, connect, inParallel, newKey, newScope, tenThousand, until, wantContent } from './kedge.mjs';
import { LEVELS, hasAll, pathsOnReplicas } from './replicas.mjs';

const { LookupInSpec, MutateInSpec, PrefixScan, RangeScan, SamplingScan, ScanTerm } = couchbase;
const LONGEST_S = 600;

for (const count of [1, 2]) {
  describe(`use of collections on ${count} nodes`, () => {
    let server, cluster, bucket;

    before(async () => {
      server = await (count === 1 ? Server.start() : Cluster.start(count, count - 1));
      cluster = await connect(server);
      bucket = cluster.bucket(BUCKET);
    });

    after(async () => {
      await cluster?.close();
      await server?.remove();
    });

    async function twoCollections(t) {
      const { manager, scope } = await newScope(t, bucket);
      for (const name of ['a', 'b']) {
        await manager.createCollection(name, scope);
      }
      return ['a', 'b'].map((name) => bucket.scope(scope).collection(name));
    }

    test("the time to live is the collection's", async (t) => {
      const { manager, scope } = await newScope(t, bucket);
      await manager.createCollection('ttl', scope, { maxExpiry: LONGEST_S });
      const documents = bucket.scope(scope).collection('ttl');
      const expiry = async () => (await documents.get('key', { withExpiry: true })).expiryTime;
      const now = () => Math.floor(Date.now() / 1000);
      for (const options of [{}, { expiry: 20 * 24 * 3_600 }]) {
        const earliest = now() + LONGEST_S;
        await documents.upsert('key', 1, options);
        const latest = now() + 1 + LONGEST_S;
        const found = await expiry();
        assert.ok(earliest <= found && found <= latest, `${earliest} ${found} ${latest}`);
      }
      await documents.upsert('key', 1, { expiry: 60 });
      assert.ok((await expiry()) <= now() + 61);
    });

    test('scans', async (t) => {
      const [a, b] = await twoCollections(t);
      const keys = Array.from({ length: 20 }, (_, n) => `key-${100 + n}`);
      await inParallel(keys.length, 5, (n) => a.upsert(keys[n], n));
      await b.upsert('key-b', 1);
      const ids = async (type, options) => (await a.scan(type, options)).map(({ id }) => id).sort();
      for (const options of [{}, { idsOnly: true }]) {
        assert.deepEqual(await ids(new PrefixScan('key-'), options), keys);
        assert.deepEqual(await ids(new RangeScan(), options), keys);
        const range = new RangeScan(new ScanTerm(keys[5]), new ScanTerm(keys[9], true));
        assert.deepEqual(await ids(range, options), keys.slice(5, 9));
        assert.deepEqual(await ids(new SamplingScan(100, 7), options), keys);
        assert.equal(new Set(await ids(new SamplingScan(10, 7), options)).size, 10);
      }
      for (const { id, content } of await a.scan(new PrefixScan('key-'))) {
        assert.equal(content, keys.indexOf(id));
      }
      await inParallel(keys.length, 5, (n) => a.remove(keys[n]));
      assert.deepEqual(await ids(new RangeScan()), []);
    });

    test('paths', async (t) => {
      const [a, b] = await twoCollections(t);
      for (const [n, where] of [a, b].entries()) {
        await where.upsert('key', { n });
      }
      await a.mutateIn('key', [
        MutateInSpec.upsert('meta.owner', 'me', { xattr: true, createPath: true }),
        MutateInSpec.upsert('_sys', 2, { xattr: true }),
        MutateInSpec.increment('n', 10),
      ]);
      const attributes = ['meta.owner', '_sys'].map((path) => LookupInSpec.get(path, { xattr: true }));
      const paths = [...attributes, LookupInSpec.get('n')];
      const found = await a.lookupIn('key', paths);
      assert.deepEqual(found.content.map(({ value }) => value), ['me', 2, 10]);
      const [owner, system, n] = (await b.lookupIn('key', paths)).content;
      assert.ok(owner.error instanceof couchbase.PathNotFoundError);
      assert.ok(system.error instanceof couchbase.PathNotFoundError);
      assert.equal(n.value, 1);
      // An attribute of the system outlives the document, in its collection only.
      await a.remove('key');
      const left = (await a.lookupIn('key', attributes, { accessDeleted: true })).content;
      assert.ok(left[0].error instanceof couchbase.PathNotFoundError);
      assert.equal(left[1].value, 2);
      await wantContent(b, 'key', { n: 1 });
    });

    test('ten thousand documents', async (t) => {
      const [a] = await twoCollections(t);
      await tenThousand(a, newKey(t));
    });

    test('durable writes and reads from replicas', async (t) => {
      const [a, b] = await twoCollections(t);
      for (const durabilityLevel of LEVELS) {
        for (let n = 0; n < 20; n++) {
          const key = `${durabilityLevel}-${n}`;
          await b.upsert(key, -1);
          await a.upsert(key, n, { durabilityLevel });
          await until(`${key} is everywhere`, () => hasAll(a, key, n, count));
          assert.equal((await a.getAnyReplica(key)).content, n);
        }
      }
      await pathsOnReplicas(a, 'paths', count);
      await b.upsert('elsewhere', 1);
      await assert.rejects(a.getAnyReplica('elsewhere'), couchbase.DocumentUnretrievableError);
    });
  });
}
