// The first lines in JavaScript of README.md, run as they stand there.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import test from 'node:test';
import { promisify } from 'node:util';
import { shared } from './shared.mjs';

test('the sample in the README runs', async () => {
  const readme = await readFile(new URL('../../../README.md', import.meta.url), 'utf8');
  const sample = readme.split('```js\n')[1].split('```')[0].replace('couchbase://127.0.0.1', shared.server.connectionString);
  // Beside this file, where the SDK is found.
  const file = fileURLToPath(new URL(`readme-sample-${process.pid}.mjs`, import.meta.url));
  await writeFile(file, sample);
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [file], { timeout: 60_000 });
    assert.equal(stdout, "{ from: 'Node.js' }\n");
  } finally {
    await rm(file);
  }
});
