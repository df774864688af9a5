// A client is killed after it has staged changes, and before it commits: others do not see them, and get past them.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import couchbase from 'couchbase';
import { Cluster } from './cluster.mjs';
import { BUCKET, PASSWORD, Server, USER, connect, newKey, until, wantContent } from './kedge.mjs';

const starts = { 'one node': () => Server.start(), 'two nodes': () => Cluster.start(2, 1) };

/** Another process stages an insert, a replacement and a removal, and is killed before it commits. */
async function killedWhileStaged(server, keys) {
  const script = fileURLToPath(new URL('staging-client.mjs', import.meta.url));
  const child = spawn(process.execPath, [script, server.connectionString, ...keys], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  const said = once(createInterface({ input: child.stdout }), 'line').then(([line]) => line);
  const first = await Promise.race([said, ended.then(() => 'nothing')]);
  child.kill('SIGKILL');
  await ended;
  assert.equal(first, 'staged');
}

for (const [name, start] of Object.entries(starts)) {
  test(`a client is lost on ${name}`, async (t) => {
    const server = await start();
    let cluster;
    t.after(async () => {
      await cluster?.close();
      await server.remove();
    });
    // It looks so often for what others have lost, from its first transaction in a bucket on.
    cluster = await connect(server, USER, PASSWORD, { cleanupConfig: { cleanupWindow: 1_000 } });
    const documents = cluster.bucket(BUCKET).defaultCollection();
    const run = (work) => cluster.transactions().run(work, { timeout: 60_000 });
    await run((attempt) => attempt.insert(documents, newKey(t), {}));
    const keys = ['i', 'r', 'd'].map((which) => `${newKey(t)}-${which}`);
    const [inserted, replaced, removed] = keys;
    await documents.upsert(replaced, { n: 1 });
    await documents.upsert(removed, { n: 2 });
    await killedWhileStaged(server, keys);

    const staged = [couchbase.LookupInSpec.exists('txn', { xattr: true })];
    const isStaged = async (key) =>
      (await documents.lookupIn(key, staged, { accessDeleted: true })).content[0].value === true;
    for (const key of keys) {
      assert.ok(await isStaged(key), key);
    }
    assert.equal((await documents.exists(inserted)).exists, false);
    await wantContent(documents, replaced, { n: 1 });
    await wantContent(documents, removed, { n: 2 });

    // It conflicts with what is staged until that has expired.
    const work = async (attempt) => {
      await attempt.replace(await attempt.get(documents, replaced), { n: 100 });
      await attempt.replace(await attempt.get(documents, removed), { n: 200 });
      await attempt.insert(documents, inserted, { n: 300 });
    };
    await until('the transaction commits', () =>
      run(work).then(
        () => true,
        (error) => {
          assert.ok(error instanceof couchbase.TransactionFailedError, error);
          return false;
        },
      ),
    );
    for (const [key, n] of [[inserted, 300], [replaced, 100], [removed, 200]]) {
      await wantContent(documents, key, { n });
      assert.equal(await isStaged(key), false, key);
    }
  });
}
