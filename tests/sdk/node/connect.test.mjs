import assert from 'node:assert/strict';
import test from 'node:test';
import couchbase from 'couchbase';
import { PASSWORD, USER, connect } from './kedge.mjs';
import { shared } from './shared.mjs';

test('cluster and bucket become ready', async () => {
  await shared.cluster.waitUntilReady(60_000);
  await shared.bucket.waitUntilReady(60_000, { serviceTypes: [couchbase.ServiceType.KeyValue] });
  const report = await shared.cluster.diagnostics();
  assert.ok(report.services.kv.length > 0);
});

test('ping reaches every service', async () => {
  const { KeyValue, Management } = couchbase.ServiceType;
  const report = await shared.cluster.ping({ serviceTypes: [KeyValue, Management] });
  for (const service of [KeyValue, Management]) {
    assert.ok(report.services[service]?.length > 0, service);
    for (const endpoint of report.services[service]) {
      assert.equal(endpoint.state, couchbase.PingState.Ok, JSON.stringify(endpoint));
    }
  }
});

test('wrong credentials', async () => {
  for (const [user, password] of [[USER, 'wrong'], ['nobody', PASSWORD], ['nobody', 'wrong']]) {
    await assert.rejects(connect(shared.server, user, password), couchbase.AuthenticationFailureError);
  }
});

test('missing bucket', async () => {
  // The SDK opens buckets in the background and prints why it could not; the caller sees a timeout.
  const missing = shared.cluster.bucket('no-such-bucket').defaultCollection();
  await assert.rejects(
    missing.get('key', { timeout: 2_000 }),
    (error) => error instanceof couchbase.BucketNotFoundError || error instanceof couchbase.TimeoutError,
  );
});

test('services that are not there fail at once', async () => {
  await assert.rejects(shared.cluster.query('SELECT 1'), couchbase.ServiceNotAvailableError);
});

test('named collections fail cleanly', async () => {
  const named = shared.bucket.scope('s').collection('c');
  await assert.rejects(named.get('key', { timeout: 2_000 }), couchbase.CouchbaseError);
});
