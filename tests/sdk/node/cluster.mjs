// Starts `kedge cluster-run` for tests, kills nodes of it and fails them over.
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { BUCKET, PASSWORD, USER, binary } from './kedge.mjs';

const READY_MS = 60_000;
const NODE_LINE = /^ready kv=\S+:(\d+) mgmt=\S+:(\d+) .*node=n_(\d+) pid=(\d+)$/;

/** Nodes n_0, n_1 and so on, on free ports, with one data directory for all. */
export class Cluster {
  #directory = mkdtempSync(join(tmpdir(), 'kedge-test-'));
  #process;
  #ended;
  nodes = [];

  static async start(count, replicas) {
    const cluster = new Cluster();
    process.once('exit', () => cluster.#process.kill('SIGTERM'));
    await cluster.#start(count, replicas);
    return cluster;
  }

  async #start(count, replicas) {
    const log = join(this.#directory, 'stderr');
    const stderr = openSync(log, 'a');
    this.#process = spawn(
      binary(),
      [
        'cluster-run', '--nodes', `${count}`, '--replicas', `${replicas}`, '--data-dir', join(this.#directory, 'data'),
        '--kv-port', '0', '--mgmt-port', '0', '--vbuckets', '64',
        '--bucket', BUCKET, '--user', USER, '--password', PASSWORD,
      ],
      { stdio: ['ignore', 'pipe', stderr] },
    );
    closeSync(stderr);
    this.#ended = new Promise((resolve) => this.#process.once('exit', resolve));
    const ready = new Promise((resolve) => {
      createInterface({ input: this.#process.stdout }).on('line', (line) => {
        const match = NODE_LINE.exec(line);
        if (match !== null) {
          const [, kv, mgmt, number, pid] = match;
          this.nodes[Number(number)] = { kv, mgmt, pid: Number(pid) };
        }
        if (line.startsWith('cluster ready ')) {
          resolve(true);
        }
      });
    });
    if (!(await Promise.race([ready, this.#ended.then(() => false), delay(READY_MS, false, { ref: false })]))) {
      throw new Error(`the cluster did not become ready\n${readFileSync(log, 'utf8')}`);
    }
  }

  get connectionString() {
    return `couchbase://${this.nodes.map(({ kv }) => `127.0.0.1:${kv}`).join(',')}`;
  }

  /** Kills a node and promotes its replicas; asks the first one. */
  failOver(node) {
    process.kill(this.nodes[node].pid, 'SIGKILL');
    const mgmt = `http://127.0.0.1:${this.nodes[0].mgmt}`;
    execFileSync(binary(), ['cluster', 'failover', `n_${node}`, '-U', mgmt, '-u', USER, '-P', PASSWORD]);
  }

  /** Ends all nodes and removes their data. */
  async remove() {
    this.#process.kill('SIGTERM');
    await this.#ended;
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
