// What tests ask of all nodes that have a document.
import assert from 'node:assert/strict';
import couchbase from 'couchbase';
import { until } from './kedge.mjs';

const { Majority, MajorityAndPersistOnMaster, PersistToMajority } = couchbase.DurabilityLevel;
export const LEVELS = [Majority, MajorityAndPersistOnMaster, PersistToMajority];

/** Whether the active and all replicas have it: a replica hears of the commit after the client does. */
export async function hasAll(collection, key, value, copies) {
  const found = await collection.getAllReplicas(key);
  assert.equal(found.filter(({ isReplica }) => !isReplica).length, 1);
  return found.length === copies && found.every(({ content }) => content === value);
}

/** Changes paths of a document, and reads them from the active and all replicas. */
export async function pathsOnReplicas(collection, key, copies) {
  const { LookupInSpec, MutateInSpec } = couchbase;
  await collection.upsert(key, { n: 1 });
  await collection.mutateIn(
    key,
    [MutateInSpec.upsert('_sys.n', 2, { xattr: true, createPath: true }), MutateInSpec.increment('n', 1)],
    { durabilityLevel: LEVELS[0] },
  );
  const paths = [LookupInSpec.get('_sys.n', { xattr: true }), LookupInSpec.get('n')];
  const isChanged = ({ content }) => content.every(({ value }) => value === 2);
  await until('the paths are on all replicas', async () => {
    const found = await collection.lookupInAllReplicas(key, paths);
    assert.equal(found.filter(({ isReplica }) => !isReplica).length, 1);
    return found.length === copies && found.every(isChanged);
  });
  assert.ok(isChanged(await collection.lookupInAnyReplica(key, paths)));
}
