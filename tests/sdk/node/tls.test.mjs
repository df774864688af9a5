import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import couchbase from 'couchbase';
import { BUCKET, PASSWORD, Server, USER, binary, inParallel, newKey, wantContent } from './kedge.mjs';

const PORTS = ['--kv-tls-port=0', '--mgmt-tls-port=0'];
const { Majority, MajorityAndPersistOnMaster, PersistToMajority } = couchbase.DurabilityLevel;

/** Makes a CA, and the certificates of a node and of the user. Returns their paths by name. */
function certify(t) {
  const above = mkdtempSync(join(tmpdir(), 'kedge-pki-'));
  t.after(() => rmSync(above, { recursive: true, force: true }));
  const pki = join(above, 'pki');
  for (const words of [['ca'], ['node', 'db1', '--host', '127.0.0.1'], ['client', USER]]) {
    execFileSync(binary(), ['cert', ...words, '--dir', pki], { stdio: 'pipe' });
  }
  return (name) => join(pki, name);
}

async function start(t, ...flags) {
  const server = await Server.start(...PORTS, ...flags);
  t.after(() => server.remove());
  return server;
}

function certified(t, file, ...flags) {
  return start(t, '--tls-cert', file('db1.pem'), '--tls-key', file('db1-key.pem'), ...flags);
}

async function connect(t, server, trustStorePath, login, bootstrapTimeout = 60_000) {
  const cluster = await couchbase.connect(server.connectionString, {
    ...login,
    security: { trustStorePath },
    timeouts: { bootstrapTimeout, kvTimeout: 60_000, kvDurableTimeout: 60_000 },
  });
  t.after(() => cluster.close());
  return cluster;
}

const byPassword = { username: USER, password: PASSWORD };

/** Stores and reads: one document, durable ones, and many at a time. */
async function use(t, cluster) {
  const collection = cluster.bucket(BUCKET).defaultCollection();
  const key = newKey(t);
  await collection.upsert(key, 'over TLS');
  await wantContent(collection, key, 'over TLS');
  for (const durabilityLevel of [Majority, MajorityAndPersistOnMaster, PersistToMajority]) {
    await collection.upsert(`${key}-${durabilityLevel}`, durabilityLevel, { durabilityLevel });
    await wantContent(collection, `${key}-${durabilityLevel}`, durabilityLevel);
  }
  await inParallel(1_000, 100, (n) => collection.upsert(`${key}-n${n}`, { n }));
  await inParallel(1_000, 100, (n) => wantContent(collection, `${key}-n${n}`, { n }));
}

test('TLS with the CA of --tls auto', async (t) => {
  const server = await start(t, '--tls=auto');
  await use(t, await connect(t, server, server.autoCa, byPassword));
});

test('TLS with a password', async (t) => {
  const file = certify(t);
  const server = await certified(t, file);
  await use(t, await connect(t, server, file('ca.pem'), byPassword));
});

test('TLS with a client certificate', async (t) => {
  const file = certify(t);
  const server = await certified(t, file, '--client-certs=mandatory', '--client-ca', file('ca.pem'));
  const authenticator = new couchbase.CertificateAuthenticator(file(`${USER}.pem`), file(`${USER}-key.pem`));
  await use(t, await connect(t, server, file('ca.pem'), { authenticator }));
  await assert.rejects(connect(t, server, file('ca.pem'), byPassword, 2_000), couchbase.CouchbaseError);
});

test('TLS with another CA', async (t) => {
  const server = await certified(t, certify(t));
  await assert.rejects(connect(t, server, certify(t)('ca.pem'), byPassword, 2_000), couchbase.CouchbaseError);
});
