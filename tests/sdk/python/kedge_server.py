"""Starts, stops and kills a Kedge server for tests.

The binary is `target/release/kedge` of this repository unless KEDGE_BIN names another one.
"""

import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
USER = "Administrator"
PASSWORD = "password"
BUCKET = "default"
READY_SECONDS = 60
STOP_SECONDS = 60

_READY = re.compile(r"ready kv=(\S+):(\d+) mgmt=(\S+):(\d+) memcached=(\S+):(\d+)")
_READY_TLS = re.compile(r" kvs=\S+:(\d+) mgmts=\S+:(\d+) memcacheds=\S+:(\d+)")


def binary():
    path = pathlib.Path(os.environ.get("KEDGE_BIN", REPOSITORY / "target/release/kedge"))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: run `cargo build --release -p kedge`, or set KEDGE_BIN")
    return path


class Server:
    """A server with a data directory of its own; its ports stay the same when it is started again.

    With `tls`, it has a certificate of a CA; with `tls="auto"`, of the CA that it makes itself.
    """

    def __init__(self, *arguments, tls=False):
        self._arguments = arguments
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="kedge-test-"))
        self._process = None
        # Variables beside those of this process.
        self.environment = {}
        self.kv_port = self.mgmt_port = self.memcached_port = 0
        self.kv_tls_port = self.memcached_tls_port = None
        self.mgmt_tls_port = None
        if tls:
            self._arguments += ("--kv-tls-port", "0", "--mgmt-tls-port", "0", "--memcached-tls-port", "0")
        # The file with the CA that signs the certificate of a server with TLS.
        self.certificate = None
        if tls == "auto":
            self._arguments += ("--tls", "auto")
            self.certificate = self._directory / "data" / "tls-auto-ca.pem"
        elif tls:
            self.certificate = self._certify()

    @property
    def connection_string(self):
        if self.kv_tls_port:
            return f"couchbases://127.0.0.1:{self.kv_tls_port}"
        return f"couchbase://127.0.0.1:{self.kv_port}"

    def _certify(self):
        """Makes a CA, and the certificates of the server and of the user; adds those of the server to the arguments."""
        pki = self._directory / "pki"
        for words in (["ca"], ["node", "db1", "--host", "127.0.0.1"], ["client", USER]):
            subprocess.run([str(binary()), "cert", *words, "--dir", str(pki)], check=True, capture_output=True)
        self._arguments += (
            "--tls-cert", str(pki / "db1.pem"), "--tls-key", str(pki / "db1-key.pem"), "--client-ca", str(pki / "ca.pem"),
        )
        return pki / "ca.pem"

    def client_certificate(self):
        """The certificate and the private key of the user."""
        pki = self.certificate.parent
        return pki / f"{USER}.pem", pki / f"{USER}-key.pem"

    def start(self):
        command = [
            str(binary()), "serve",
            "--data-dir", str(self._directory / "data"),
            "--kv-port", str(self.kv_port),
            "--mgmt-port", str(self.mgmt_port),
            "--memcached-port", str(self.memcached_port),
            "--listen", "127.0.0.1",
            "--bucket", BUCKET, "--user", USER, "--password", PASSWORD,
            *self._arguments,
        ]
        with open(self._directory / "stderr", "ab") as stderr:
            environment = {**os.environ, **self.environment}
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
        line = self._first_line()
        match = _READY.match(line)
        if match is None:
            raise RuntimeError(f"the server did not become ready:\n{self.stderr()}")
        self.kv_port, self.mgmt_port, self.memcached_port = (int(match[n]) for n in (2, 4, 6))
        with_tls = _READY_TLS.search(line)
        if with_tls:
            ports = (int(port) for port in with_tls.groups())
            self.kv_tls_port, self.mgmt_tls_port, self.memcached_tls_port = ports
        return self

    def _first_line(self):
        lines = queue.Queue()

        def read():
            for line in self._process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        try:
            return lines.get(timeout=READY_SECONDS)
        except queue.Empty:
            self._process.kill()
            return ""

    def stderr(self):
        return (self._directory / "stderr").read_text(errors="replace")

    @property
    def pid(self):
        return self._process.pid

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def terminate(self):
        """SIGTERM; returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_SECONDS)

    def kill(self):
        """SIGKILL: no goodbye, nothing is flushed."""
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def remove(self):
        """Ends the server if it runs and removes its data directory."""
        if self.is_running():
            self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
