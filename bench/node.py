"""One node of Kedge that is measured, and the load generator."""

import base64
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

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

    def __init__(self, data_dir, wait=True, more=(), name="kedge", quota="4GiB", binary=KEDGE, under=(), threads=SERVER_THREADS):
        self.ports = [free_port() for _ in range(3)]
        command = [*under, binary, "serve", "--data-dir", data_dir, "--threads", threads, "--bucket-quota", quota]
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

    def _request(self, method, path, form=None, seconds=30):
        """Status and body of a response of management."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[1], timeout=seconds)
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, form and urllib.parse.urlencode(form), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, path):
        """A document of management, or None while it does not answer."""
        try:
            status, body = self._request("GET", path)
        except OSError:
            return None
        return json.loads(body) if status == 200 else None

    def tell(self, path, seconds=90, **form):
        """Sends a form to management, which must accept it."""
        status, body = self._request("POST", path, form, seconds)
        if status not in (200, 202):
            raise RuntimeError(f"POST {path}: {status} {body.decode(errors='replace')[:300]}")

    def bucket_stats(self):
        """Figures of the bucket by name; empty while it does not answer. What is no number stays text."""
        document = self.ask("/kedge/stats") or {}
        stats = document.get("buckets", {}).get("default", {})
        return {name: int(text) if text.isdigit() else text for name, text in stats.items()}

    def wait_for(self, what, holds, seconds):
        """Asks until the bucket's figures are as they should be; seconds that it took."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self.process.died():
                sys.exit(self.process.complaint())
            stats = self.bucket_stats()
            if stats and holds(stats):
                return time.monotonic() - began
            time.sleep(0.02)
        sys.exit(f"after {seconds} s still not so: {what}")

    def wait_applied(self, seconds=120):
        """Until everything is in the vBuckets' files."""
        def holds(stats):
            # An older binary has the second name.
            unapplied = stats.get("ep_unapplied_items", stats.get("ep_unsettled_items", 0))
            return unapplied == 0 and stats["ep_queue_size"] == 0
        return self.wait_for("everything is applied", holds, seconds)

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
