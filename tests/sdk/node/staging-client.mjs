// Stages changes in a transaction, says so, and never commits: it waits until it is killed.
//
// Arguments: a connection string, and the keys of what to insert, to replace and to remove.
import { BUCKET, PASSWORD, USER, connect } from './kedge.mjs';

// A transaction that takes longer has expired, and anybody may take back what it has staged.
const LOST_AFTER_MS = 2_000;

const [, , connectionString, inserted, replaced, removed] = process.argv;
const cleanupConfig = { disableLostAttemptCleanup: true, disableClientAttemptCleanup: true };
const cluster = await connect({ connectionString }, USER, PASSWORD, { cleanupConfig });
const documents = cluster.bucket(BUCKET).defaultCollection();
await cluster.transactions().run(
  async (attempt) => {
    await attempt.insert(documents, inserted, { n: 30 });
    await attempt.replace(await attempt.get(documents, replaced), { n: 10 });
    await attempt.remove(await attempt.get(documents, removed));
    console.log('staged');
    await new Promise((resolve) => process.stdin.once('end', resolve).resume());
  },
  { timeout: LOST_AFTER_MS },
);
