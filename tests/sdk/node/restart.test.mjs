import assert from 'node:assert/strict';
import test from 'node:test';
import couchbase from 'couchbase';
import { BUCKET, Server, connect, inParallel, until, wantContent } from './kedge.mjs';

const { MajorityAndPersistOnMaster, PersistToMajority } = couchbase.DurabilityLevel;

async function withOwnServer(work) {
  const server = await Server.start();
  const cluster = await connect(server);
  try {
    await work(server, cluster.bucket(BUCKET).defaultCollection());
  } finally {
    await cluster.close();
    server.remove();
  }
}

async function startAgain(server, collection, key) {
  await server.start();
  const reads = () => collection.get(key, { timeout: 1_000 }).then(() => true, () => false);
  await until('the client reconnects', reads);
}

test('an orderly restart keeps everything', () =>
  withOwnServer(async (server, collection) => {
    const count = 1_000;
    await inParallel(count, 100, (n) => collection.upsert(`key-${n}`, { n }));
    const before = await collection.get('key-0');

    assert.equal(await server.terminate(), 0, server.log());
    await startAgain(server, collection, 'key-0');

    await inParallel(count, 100, (n) => wantContent(collection, `key-${n}`, { n }));
    assert.equal(String((await collection.get('key-0')).cas), String(before.cas));
    await collection.replace('key-0', 1, { cas: before.cas });
  }));

for (const durabilityLevel of [MajorityAndPersistOnMaster, PersistToMajority]) {
  const name = couchbase.DurabilityLevel[durabilityLevel];
  test(`acknowledged writes at ${name} survive a kill`, () =>
    withOwnServer(async (server, collection) => {
      const count = 500;
      await inParallel(count, 50, (n) => collection.upsert(`key-${n}`, { n }, { durabilityLevel }));
      await collection.remove('key-0', { durabilityLevel });

      await server.kill();
      await startAgain(server, collection, 'key-1');

      await inParallel(count - 1, 50, (n) => wantContent(collection, `key-${n + 1}`, { n: n + 1 }));
      await assert.rejects(collection.get('key-0'), couchbase.DocumentNotFoundError);
      await collection.upsert('key-0', 'again', { durabilityLevel });
    }));
}
