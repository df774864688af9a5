// Starts, stops and kills a Kedge server for tests, and what the suites share.
//
// The binary is `target/release/kedge` of this repository unless KEDGE_BIN names another one.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, openSync, closeSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import couchbase from 'couchbase';

export const USER = 'Administrator';
export const PASSWORD = 'password';
export const BUCKET = 'default';

const READY_MS = 60_000;
const STOP_MS = 60_000;
const UNTIL_MS = 60_000;
const READY_LINE = /^ready kv=\S+:(\d+) mgmt=\S+:(\d+) memcached=\S+:(\d+)/;
const READY_TLS = / kvs=\S+:(\d+)/;

export function binary() {
  const built = fileURLToPath(new URL('../../../target/release/kedge', import.meta.url));
  const path = process.env.KEDGE_BIN ?? built;
  if (!existsSync(path)) {
    throw new Error(`${path} is missing: run \`cargo build --release -p kedge\`, or set KEDGE_BIN`);
  }
  return path;
}

/** A server with a data directory of its own; its ports stay the same when it is started again. */
export class Server {
  #directory = mkdtempSync(join(tmpdir(), 'kedge-test-'));
  #process;
  #ended;
  #ports = ['0', '0', '0'];
  #tlsPort;
  #flags;

  constructor(flags = []) {
    this.#flags = flags;
  }

  static async start(...flags) {
    const server = new Server(flags);
    process.once('exit', () => server.remove());
    await server.start();
    return server;
  }

  /** The file with the CA that the server makes with `--tls=auto`. */
  get autoCa() {
    return join(this.#directory, 'data', 'tls-auto-ca.pem');
  }

  get connectionString() {
    if (this.#tlsPort !== undefined) {
      return `couchbases://127.0.0.1:${this.#tlsPort}`;
    }
    return `couchbase://127.0.0.1:${this.#ports[0]}`;
  }

  async start() {
    const [kv, mgmt, memcached] = this.#ports;
    const stderr = openSync(this.#logPath(), 'a');
    this.#process = spawn(
      binary(),
      [
        'serve', '--data-dir', join(this.#directory, 'data'),
        '--kv-port', kv, '--mgmt-port', mgmt, '--memcached-port', memcached,
        '--listen', '127.0.0.1', '--bucket', BUCKET, '--user', USER, '--password', PASSWORD,
        ...this.#flags,
      ],
      { stdio: ['ignore', 'pipe', stderr] },
    );
    closeSync(stderr);
    const child = this.#process;
    this.#ended = new Promise((resolve) => child.once('exit', (code) => resolve(code)));
    const line = await Promise.race([
      new Promise((resolve) => createInterface({ input: child.stdout }).once('line', resolve)),
      this.#ended.then(() => ''),
      delay(READY_MS, '', { ref: false }),
    ]);
    const match = READY_LINE.exec(line);
    if (match === null) {
      this.remove();
      throw new Error(`the server did not become ready: ${line}`);
    }
    this.#ports = match.slice(1, 4);
    this.#tlsPort = READY_TLS.exec(line)?.[1];
  }

  #logPath() {
    return join(this.#directory, 'stderr');
  }

  log() {
    return readFileSync(this.#logPath(), 'utf8');
  }

  /** SIGTERM; resolves to the exit code. */
  terminate() {
    this.#process.kill('SIGTERM');
    return Promise.race([this.#ended, delay(STOP_MS, 'still running', { ref: false })]);
  }

  /** SIGKILL: no goodbye, nothing is flushed. */
  kill() {
    this.#process.kill('SIGKILL');
    return this.#ended;
  }

  /** Ends the server if it runs and removes its data directory. */
  remove() {
    if (this.#process !== undefined && this.#process.exitCode === null) {
      this.#process.kill('SIGKILL');
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** Connects; `transactions` is the configuration of transactions, if it is not the SDK's. */
export function connect({ connectionString }, user = USER, password = PASSWORD, transactions = undefined) {
  return couchbase.connect(connectionString, {
    username: user,
    password,
    transactions,
    timeouts: { bootstrapTimeout: 60_000, kvTimeout: 60_000, kvDurableTimeout: 60_000 },
  });
}

export function newKey(test) {
  return `${test.name}-${randomUUID()}`.replaceAll(' ', '-');
}

/** Asks again and again until `condition()` resolves to true. */
export async function until(what, condition) {
  const end = Date.now() + UNTIL_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `not within ${UNTIL_MS} ms: ${what}`);
    await delay(50);
  }
}

export async function untilGone(collection, key) {
  await until(`${key} is gone`, async () => !(await collection.exists(key)).exists);
}

export async function wantContent(collection, key, wanted) {
  assert.deepEqual((await collection.get(key)).content, wanted);
}

/** Runs `work(n)` for 0 to count - 1, `width` at a time. */
export async function inParallel(count, width, work) {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      await work(next++);
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
}

/** Makes a scope, and drops it when the test is over. */
export async function newScope(t, bucket) {
  const manager = bucket.collections();
  const scope = `s-${randomUUID().slice(0, 8)}`;
  await manager.createScope(scope);
  t.after(() => manager.dropScope(scope).catch(() => undefined));
  return { manager, scope };
}

/** Stores, reads and removes ten thousand documents, many at a time. */
export async function tenThousand(collection, prefix) {
  const count = 10_000;
  await inParallel(count, 200, (n) => collection.upsert(`${prefix}-${n}`, { n }));
  await inParallel(count, 200, async (n) => {
    assert.deepEqual((await collection.get(`${prefix}-${n}`)).content, { n });
  });
  await inParallel(count, 200, (n) => collection.remove(`${prefix}-${n}`));
  assert.equal((await collection.exists(`${prefix}-0`)).exists, false);
}
