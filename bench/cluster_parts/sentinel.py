"""Redis with two replicas and three sentinels, and its client: as little of RESP as they need."""

import signal
import socket
import time

from harness import Process, free_port, fresh_dir, need, wait_for_port

from cluster_parts.writer import ANSWER_S, READ_BACK_S

MASTER, SENTINELS, REPLICAS = "bench", 3, 2
# How long a sentinel waits before another attempt; far beyond what a failover takes here.
FAILOVER_TIMEOUT_MS = 10_000
WAIT_MS = 1000


class Refused(OSError):
    """An error that the server sent. The connection is closed after it, because other responses may follow."""


class Resp:
    """A connection."""

    def __init__(self, port):
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def ask(self, *words):
        return self.ask_all([words])[0]

    def ask_all(self, requests):
        """Sends requests at once and returns their responses."""
        data = b""
        for words in requests:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            data += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self._socket.sendall(data)
        return [read_reply(self._file) for _ in requests]

    def close(self):
        self._file.close()
        self._socket.close()


def read_reply(file):
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("closed")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b"-":
        raise Refused(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        if rest == b"-1":
            return None
        value = file.read(int(rest) + 2)
        if len(value) != int(rest) + 2:
            raise ConnectionError("closed")
        return value[:-2]
    if kind == b"*":
        return [read_reply(file) for _ in range(int(rest))]
    raise ConnectionError(f"no reply of RESP: {line!r}")


class SentinelClient:
    """Writes to the master that the sentinels name."""

    def __init__(self, sentinels, durable):
        self._sentinels, self._durable, self._master = sentinels, durable, None

    def _connect(self):
        """The master's connection; the sentinels are asked in turn."""
        if self._master is None:
            for port in self._sentinels:
                try:
                    sentinel = Resp(port)
                    try:
                        address = sentinel.ask("SENTINEL", "get-master-addr-by-name", MASTER)
                    finally:
                        sentinel.close()
                    if address:
                        self._master = Resp(int(address[1]))
                        break
                except OSError:
                    continue
            else:
                raise ConnectionError("no sentinel names a master that answers")
        return self._master

    def close(self):
        if self._master is not None:
            self._master.close()
            self._master = None

    def write(self, number):
        requests = [("SET", f"write-{number}", number)]
        if self._durable:
            requests.append(("WAIT", 1, WAIT_MS))
        try:
            master = self._connect()
            replies = master.ask_all(requests)
        except OSError:
            self.close()
            return None
        return master.port if not self._durable or replies[1] >= 1 else None

    def found(self, numbers):
        """Those that have the value that was written."""
        end, found, numbers = time.perf_counter() + READ_BACK_S, [], list(numbers)
        while numbers:
            some = numbers[:500]
            try:
                values = self._connect().ask("MGET", *(f"write-{number}" for number in some))
            except OSError:
                self.close()
                if time.perf_counter() > end:
                    raise
                time.sleep(0.05)
                continue
            found += [number for number, value in zip(some, values) if value == b"%d" % number]
            numbers = numbers[500:]
        return found


class Sentinel:
    """The servers. The durable form has every write synced, and refuses writes without a replica that follows."""

    def __init__(self, durable, down_after_s):
        program = need("redis-server", "redis-server")
        self.durable = durable
        self.ports = [free_port() for _ in range(1 + REPLICAS)]
        self.sentinel_ports = [free_port() for _ in range(SENTINELS)]
        self.processes = []
        how = ["always", "--min-replicas-to-write", 1] if durable else ["everysec"]
        for at, port in enumerate(self.ports):
            more = ["--replicaof", "127.0.0.1", self.ports[0]] if at else []
            self._start(f"sentinel-redis-{at}", port, [
                program, "--port", port, "--bind", "127.0.0.1", "--dir", fresh_dir(f"sentinel-redis-{at}"), "--save", "",
                "--appendonly", "yes", "--appendfsync", *how, "--repl-diskless-sync-delay", 0, *more,
            ])
        for at, port in enumerate(self.sentinel_ports):
            name = f"sentinel-{at}"
            directory = fresh_dir(name)
            file = directory / "sentinel.conf"
            # The sentinel writes what it learns to this file.
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
                f"sentinel monitor {MASTER} 127.0.0.1 {self.ports[0]} {SENTINELS // 2 + 1}\n"
                f"sentinel down-after-milliseconds {MASTER} {round(down_after_s * 1000)}\n"
                f"sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT_MS}\n"
            )
            self._start(name, port, [program, file, "--sentinel"])
        self._wait_until_all_know_all()

    def _start(self, name, port, command):
        self.processes.append(Process(name, command))
        wait_for_port(self.processes[-1], port)

    def _wait_until_all_know_all(self, seconds=60):
        end = time.monotonic() + seconds
        for port in self.sentinel_ports:
            sentinel = Resp(port)
            while True:
                words = sentinel.ask("SENTINEL", "master", MASTER)
                state = dict(zip(words[::2], words[1::2]))
                replicas = sentinel.ask("SENTINEL", "replicas", MASTER)
                linked = sum(dict(zip(each[::2], each[1::2]))[b"master-link-status"] == b"ok" for each in replicas)
                if (linked, int(state[b"num-other-sentinels"])) == (REPLICAS, SENTINELS - 1):
                    break
                if time.monotonic() > end:
                    raise RuntimeError(f"a sentinel knows {linked} replicas after {seconds} s: {state}")
                time.sleep(0.05)
            sentinel.close()

    def client(self):
        return SentinelClient(self.sentinel_ports, self.durable)

    def kill(self):
        """Ends the master; its port."""
        self.processes[0].popen.kill()
        return self.ports[0]

    def stop(self):
        for process in self.processes:
            process.stop(signal.SIGKILL)
