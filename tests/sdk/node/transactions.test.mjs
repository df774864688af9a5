// Distributed transactions of the SDK, on one node and on two: staged changes, commit, rollback, conflicts. They stand
// on extended attributes, macros, documents created as deleted, CAS and durable writes.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import couchbase from 'couchbase';
import { Cluster } from './cluster.mjs';
import { BUCKET, PASSWORD, Server, USER, connect, newKey, newScope, until, wantContent } from './kedge.mjs';
import { LEVELS } from './replicas.mjs';

const starts = { 'one node': () => Server.start(), 'two nodes': () => Cluster.start(2, 1) };

for (const [name, start] of Object.entries(starts)) {
  describe(`transactions on ${name}`, () => {
    let server, cluster, documents;

    before(async () => {
      server = await start();
      cluster = await connect(server);
      documents = cluster.bucket(BUCKET).defaultCollection();
    });

    after(async () => {
      await cluster?.close();
      await server?.remove();
    });

    // With time enough on a busy machine.
    const run = (work, options) => cluster.transactions().run(work, { timeout: 60_000, ...options });

    // This SDK tells of a conflict with a failure, and leaves it to its caller to try again.
    const runAgain = (work) =>
      until('the transaction commits', () =>
        run(work).then(
          () => true,
          (error) => {
            assert.ok(error instanceof couchbase.TransactionFailedError, error);
            return false;
          },
        ),
      );

    async function wantNothingStaged(key) {
      const staged = [couchbase.LookupInSpec.get('txn', { xattr: true })];
      const found = await documents.lookupIn(key, staged, { accessDeleted: true });
      assert.ok(found.content[0].error instanceof couchbase.PathNotFoundError, key);
    }

    async function threeKeys(t) {
      const [inserted, replaced, removed] = [newKey(t), newKey(t), newKey(t)];
      await documents.upsert(replaced, { n: 1 });
      await documents.upsert(removed, { n: 2 });
      return { inserted, replaced, removed };
    }

    /** Stages one change of each kind. */
    async function change(attempt, { inserted, replaced, removed }) {
      await attempt.insert(documents, inserted, { n: 3 });
      await attempt.replace(await attempt.get(documents, replaced), { n: 4 });
      await attempt.remove(await attempt.get(documents, removed));
    }

    test('commit', async (t) => {
      const keys = await threeKeys(t);
      const { inserted, replaced, removed } = keys;
      const result = await run(async (attempt) => {
        await change(attempt, keys);
        // The transaction sees its changes, and nobody else does.
        assert.deepEqual((await attempt.get(documents, inserted)).content, { n: 3 });
        assert.deepEqual((await attempt.get(documents, replaced)).content, { n: 4 });
        await assert.rejects(attempt.get(documents, removed), couchbase.DocumentNotFoundError);
        assert.equal((await documents.exists(inserted)).exists, false);
        await wantContent(documents, replaced, { n: 1 });
        await wantContent(documents, removed, { n: 2 });
      });
      assert.ok(result.unstagingComplete);
      await wantContent(documents, inserted, { n: 3 });
      await wantContent(documents, replaced, { n: 4 });
      assert.equal((await documents.exists(removed)).exists, false);
      await wantNothingStaged(inserted);
      await wantNothingStaged(replaced);
    });

    test('commit at every level', async (t) => {
      for (const durabilityLevel of LEVELS) {
        const keys = await threeKeys(t);
        const result = await run((attempt) => change(attempt, keys), { durabilityLevel });
        assert.ok(result.unstagingComplete);
        await wantContent(documents, keys.inserted, { n: 3 });
        await wantContent(documents, keys.replaced, { n: 4 });
        assert.equal((await documents.exists(keys.removed)).exists, false);
        await wantNothingStaged(keys.inserted);
        await wantNothingStaged(keys.replaced);
      }
    });

    // What transactions note of their progress is there, and documents of two other collections change together.
    test('metadata in a collection of its own', async (t) => {
      const bucket = cluster.bucket(BUCKET);
      const { manager, scope } = await newScope(t, bucket);
      for (const name of ['a', 'metadata']) {
        await manager.createCollection(name, scope);
      }
      const metadataCollection = { bucket: BUCKET, scope, collection: 'metadata' };
      const own = await connect(server, USER, PASSWORD, { metadataCollection });
      t.after(() => own.close());
      const opened = own.bucket(BUCKET);
      const all = [opened.scope(scope).collection('a'), opened.defaultCollection()];
      const key = newKey(t);
      for (const [n, where] of all.entries()) {
        await where.upsert(key, { n });
      }
      await own.transactions().run(
        async (attempt) => {
          for (const where of all) {
            const found = await attempt.get(where, key);
            await attempt.replace(found, { n: found.content.n + 10 });
          }
        },
        { timeout: 60_000 },
      );
      for (const [n, where] of all.entries()) {
        await wantContent(where, key, { n: n + 10 });
      }
      const metadata = bucket.scope(scope).collection('metadata');
      const found = await metadata.scan(new couchbase.PrefixScan('_txn:atr-'), { idsOnly: true });
      assert.ok(found.length > 0);
    });

    test('rollback', async (t) => {
      const keys = await threeKeys(t);
      const { inserted, replaced, removed } = keys;
      const failing = run(async (attempt) => {
        await change(attempt, keys);
        throw new Error('enough');
      });
      await assert.rejects(failing, couchbase.TransactionFailedError);
      assert.equal((await documents.exists(inserted)).exists, false);
      await wantContent(documents, replaced, { n: 1 });
      await wantContent(documents, removed, { n: 2 });
      await wantNothingStaged(replaced);
      await wantNothingStaged(removed);
      // The key of what was staged is free again.
      await documents.insert(inserted, { n: 5 });
    });

    test('what a transaction may not do', async (t) => {
      const { inserted, replaced } = await threeKeys(t);
      await run(async (attempt) => {
        await assert.rejects(attempt.get(documents, inserted), couchbase.DocumentNotFoundError);
        await assert.rejects(attempt.insert(documents, replaced, { n: 2 }), couchbase.DocumentExistsError);
        await attempt.replace(await attempt.get(documents, replaced), { n: 3 });
      });
      await wantContent(documents, replaced, { n: 3 });
    });

    test('insert after remove', async (t) => {
      const { removed } = await threeKeys(t);
      await documents.remove(removed);
      await run((attempt) => attempt.insert(documents, removed, { n: 3 }));
      await wantContent(documents, removed, { n: 3 });
    });

    test('binary documents', async (t) => {
      const [inserted, replaced] = [newKey(t), newKey(t)];
      const [first, second] = [Buffer.from([0, 255, 1]), Buffer.from([254, 0])];
      await documents.upsert(replaced, first);
      await run(async (attempt) => {
        await attempt.insert(documents, inserted, first);
        await attempt.replace(await attempt.get(documents, replaced), second);
        assert.ok((await attempt.get(documents, inserted)).content.equals(first));
      });
      await wantContent(documents, inserted, first);
      await wantContent(documents, replaced, second);
    });

    test('a write between is not lost', async (t) => {
      const { replaced } = await threeKeys(t);
      const attempts = [];
      await runAgain(async (attempt) => {
        const found = await attempt.get(documents, replaced);
        attempts.push(found.content.n);
        if (attempts.length === 1) {
          await documents.upsert(replaced, { n: 10 });
        }
        await attempt.replace(found, { n: found.content.n + 1 });
      });
      assert.deepEqual(attempts, [1, 10]);
      await wantContent(documents, replaced, { n: 11 });
    });

    // Each writer moves 1 from one document to the other, so what one of them loses shows in the sums.
    test('conflicting transactions take turns', async (t) => {
      const [writers, each] = [3, 4];
      const [one, other] = [newKey(t), newKey(t)];
      await documents.upsert(one, { n: 100 });
      await documents.upsert(other, { n: 0 });
      const add = async (attempt, key, delta) => {
        const found = await attempt.get(documents, key);
        await attempt.replace(found, { n: found.content.n + delta });
      };
      const writer = async () => {
        for (let n = 0; n < each; n++) {
          await runAgain(async (attempt) => {
            await add(attempt, one, -1);
            await add(attempt, other, 1);
          });
        }
      };
      await Promise.all(Array.from({ length: writers }, writer));
      await wantContent(documents, one, { n: 100 - writers * each });
      await wantContent(documents, other, { n: writers * each });
    });
  });
}
