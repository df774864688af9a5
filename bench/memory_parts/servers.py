"""The servers whose memory is compared, each with the same four verbs: start, settle, restart, stop."""

import shutil
import signal
import socket
import time

from harness import Process, free_port, fresh_dir, wait_for_port
from node import SERVER_THREADS, Kedge
from rivals import binary, version

# More than any cell needs, so that no server evicts.
QUOTA_MIB = 20 * 1024
# More than the interval of the defragmenter.
DEFRAGMENTER_SECONDS = 12
# A restart reads all documents, and Redis first writes them.
RESTART_S_MAX = 600


class KedgeServer:
    """Kedge with its defaults, except for the quota. It settles when all documents are in the files of their vBuckets and the
    defragmenter moves none any more."""

    NAME, KEEPS = "kedge", True

    def __init__(self):
        self.data = fresh_dir("memory-kedge")
        self.kedge = self._start()

    def _start(self):
        return Kedge(self.data, quota=f"{QUOTA_MIB}MiB")

    @property
    def process(self):
        return self.kedge.process

    @property
    def url(self):
        return self.kedge.kv_url

    def settle(self):
        self.kedge.wait_applied(RESTART_S_MAX)
        moved, seen = None, "ep_defragmenter_num_moved"
        while moved != (now := self.kedge.bucket_stats().get(seen)):
            moved = now
            time.sleep(DEFRAGMENTER_SECONDS)

    def restart(self):
        self.kedge.stop()
        self.kedge = self._start()
        self.kedge.wait_for(
            "all documents are loaded", lambda stats: stats["ep_warmup_thread"] == "complete", RESTART_S_MAX
        )

    def stop(self):
        self.kedge.stop(signal.SIGKILL)
        shutil.rmtree(self.data, ignore_errors=True)


class Memcached:
    """memcached with its defaults, except for the number of threads and the limit of memory."""

    NAME, KEEPS = "memcached", False

    def __init__(self):
        port = free_port()
        command = [
            binary("memcached", "memcached"), "-u", "nobody", "-l", "127.0.0.1", "-p", port, "-t", SERVER_THREADS,
            "-m", QUOTA_MIB,
        ]
        self.process, self.url = Process("memcached", command), f"memcached://127.0.0.1:{port}"
        wait_for_port(self.process, port)

    def settle(self):
        pass

    def stop(self):
        self.process.stop()


class Redis:
    """Redis without a log and without saves, but for the one before its restart."""

    NAME, PROGRAM, KEEPS = "redis", "redis-server", True

    def __init__(self):
        self.data = fresh_dir(f"memory-{self.NAME}")
        self._start()

    def _start(self):
        self.port = free_port()
        command = [
            binary(self.NAME, self.PROGRAM), "--port", self.port, "--bind", "127.0.0.1", "--dir", self.data,
            "--save", "", "--appendonly", "no",
        ]
        self.process, self.url = Process(self.NAME, command), f"redis://127.0.0.1:{self.port}"
        wait_for_port(self.process, self.port)
        self._ask("PING", b"+PONG")

    def _ask(self, command, expected):
        """Asks until the answer is as expected; while Redis loads it answers with an error."""
        while True:
            with socket.create_connection(("127.0.0.1", self.port), RESTART_S_MAX) as connection:
                connection.sendall(f"{command}\r\n".encode())
                if connection.recv(4096).startswith(expected):
                    return

    def settle(self):
        pass

    def restart(self):
        self._ask("SAVE", b"+OK")
        self.process.stop()
        self._start()

    def stop(self):
        self.process.stop(signal.SIGKILL)
        shutil.rmtree(self.data, ignore_errors=True)


class Valkey(Redis):
    """Valkey, as Redis."""

    NAME, PROGRAM = "valkey", "valkey-server"


def all_servers():
    """Kedge, and those rivals that this machine has."""
    rivals = [(Memcached, "memcached"), (Redis, Redis.PROGRAM), (Valkey, Valkey.PROGRAM)]
    return [KedgeServer, *(rival for rival, program in rivals if binary(rival.NAME, program))]


def versions():
    """The versions of the rivals by name."""
    programs = {"memcached": "memcached", "redis": Redis.PROGRAM, "valkey": Valkey.PROGRAM}
    paths = {name: binary(name, program) for name, program in programs.items()}
    return {name: version(path) for name, path in paths.items() if path}
