"""A KMIP server: PyKMIP, with certificates of a CA."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

from kmip import enums
from kmip.pie.client import ProxyKmipClient

import deadline
import kedge_server

CONFIGURATION = """
[server]
hostname=127.0.0.1
port={port}
certificate_path={home}/kmip.pem
key_path={home}/kmip-key.pem
ca_path={home}/ca.pem
auth_suite=TLS1.2
policy_path={home}/policies
enable_tls_client_auth=True
database_path={home}/keys.db
"""


def certify(directory, *names):
    """Makes a CA, and the certificates of clients and of the server."""
    for words in (["ca"], ["node", "kmip", "--host", "127.0.0.1"], *(["client", name] for name in names)):
        command = [str(kedge_server.binary()), "cert", *words, "--dir", str(directory)]
        subprocess.run(command, check=True, capture_output=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class KmipServer:
    """The server. Its keys stay while it is stopped."""

    def __init__(self, home):
        self.home, self._process = home, None
        self.port = free_port()
        (home / "policies").mkdir()
        certify(home, "kedge", "other")
        (home / "server.conf").write_text(CONFIGURATION.format(home=home, port=self.port))

    def start(self):
        program = pathlib.Path(sys.executable).with_name("pykmip-server")
        command = [str(program), "-f", str(self.home / "server.conf"), "-l", str(self.home / "server.log")]
        with open(self.home / "stderr", "ab") as stderr:
            self._process = subprocess.Popen(command, stdout=stderr, stderr=stderr, start_new_session=True)
        deadline.until(self._answers, "the KMIP server listens")

    def _answers(self):
        assert self._process.poll() is None, (self.home / "stderr").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self):
        if self._process is not None:
            # It has processes of its own, which outlive it.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(deadline.SECONDS)
            self._process = None

    def is_running(self):
        return self._process is not None

    def client(self):
        return ProxyKmipClient(
            hostname="127.0.0.1", port=self.port, ssl_version="PROTOCOL_TLSv1_2",
            cert=str(self.home / "kedge.pem"), key=str(self.home / "kedge-key.pem"), ca=str(self.home / "ca.pem"),
        )

    def key(self, is_active=True, bits=256):
        """The id of a new key."""
        masks = [enums.CryptographicUsageMask.ENCRYPT, enums.CryptographicUsageMask.DECRYPT]
        with self.client() as client:
            key = client.create(enums.CryptographicAlgorithm.AES, bits, cryptographic_usage_mask=masks)
            if is_active:
                client.activate(key)
        return key

    def material(self, key):
        with self.client() as client:
            return client.get(key).value

    def revoke(self, key):
        with self.client() as client:
            client.revoke(enums.RevocationReasonCode.CESSATION_OF_OPERATION, key)

    def source(self, key, **options):
        files = {"certPath": "kedge.pem", "keyPath": "kedge-key.pem", "caPath": "ca.pem"}
        options = {**{name: self.home / file for name, file in files.items()}, **options}
        options = "&".join(f"{name}={value}" for name, value in options.items())
        return f"kmip:127.0.0.1:{self.port}/{key}?{options}"


class Silent:
    """A server that accepts connections and never answers."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._accepted = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                self._accepted.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self):
        self._listener.close()
        for connection in self._accepted:
            connection.close()
