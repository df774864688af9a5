"""One node of Kedge that is measured, and the load generator."""

import json
import signal
import socket
import subprocess
import sys
import time

from harness import KEDGE, Process, free_port

SERVER_THREADS = 2
USER, PASSWORD = "Administrator", "password"
LOGIN = ["-u", USER, "-P", PASSWORD]
# Of the keys that the generator makes.
KEY_BYTES = 20
# No run of the generator takes longer.
LOAD_S_MAX = 600


class Kedge:
    """`kedge serve` on fixed ports, so that nothing has to be read before it can be asked."""

    def __init__(self, data_dir, wait=True, more=(), name="kedge", quota="4GiB"):
        self.ports = [free_port() for _ in range(3)]
        command = [KEDGE, "serve", "--data-dir", data_dir, "--threads", SERVER_THREADS, "--bucket-quota", quota]
        for port_name, port in zip(("kv", "mgmt", "memcached"), self.ports):
            command += [f"--{port_name}-port", port]
        self.began = time.perf_counter()
        self.process = Process(name, command + ["--log-level", "warn", *more])
        if wait:
            self.first_answer()

    @property
    def kv_url(self):
        return f"couchbase://127.0.0.1:{self.ports[0]}/default"

    @property
    def memcached_url(self):
        return f"memcached://127.0.0.1:{self.ports[2]}"

    def first_answer(self, key="nothing", expected=b"END\r\n", seconds=60):
        """Seconds from exec to the first GET that is answered as expected."""
        request = f"get {key}\r\n".encode()
        while time.perf_counter() - self.began < seconds:
            if self.process.died():
                sys.exit(self.process.complaint())
            try:
                with socket.create_connection(("127.0.0.1", self.ports[2]), 5) as connection:
                    connection.sendall(request)
                    answer = connection.recv(4096)
                    if answer.startswith(expected):
                        return time.perf_counter() - self.began
            except OSError:
                pass
            time.sleep(0.0002)
        sys.exit(f"kedge does not answer {request!r}")

    def stats(self):
        done = subprocess.run(
            [KEDGE, "stats", "--json", "-U", self.kv_url, *LOGIN], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def stop(self, how=signal.SIGTERM):
        return self.process.stop(how)


def load(url, *flags):
    """One run of the generator; its report."""
    command = [KEDGE, "load", "-U", url, *LOGIN, "--json", *(str(flag) for flag in flags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_S_MAX)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout)


def size(bytes_each):
    return ["--min-size", bytes_each, "--max-size", bytes_each]
