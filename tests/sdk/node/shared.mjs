// One server and one connection for the tests of a file.
import { after, before } from 'node:test';
import { BUCKET, Server, connect } from './kedge.mjs';

export const shared = {};

before(async () => {
  shared.server = await Server.start();
  shared.cluster = await connect(shared.server);
  shared.bucket = shared.cluster.bucket(BUCKET);
  shared.collection = shared.bucket.defaultCollection();
});

after(async () => {
  await shared.cluster?.close();
  shared.server?.remove();
});
