"""Servers with TLS: Kedge, and memcached if it was built with it. All have the same certificate, with a key for ECDSA P-256."""

import ssl
import subprocess

from harness import Process, free_port, fresh_dir, need, wait_for_port
from kv_parts.servers import program
from node import SERVER_THREADS, Kedge


class Certificate:
    """A certificate of its own issuer."""

    def __init__(self):
        directory = fresh_dir("tls-certificate")
        self.chain, self.key = directory / "server.pem", directory / "server-key.pem"
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
            "-keyout", self.key, "-out", self.chain,
        )
        # memcached becomes another user before it reads them.
        for path in (directory, self.chain, self.key):
            path.chmod(0o755)
        shown = openssl("x509", "-in", self.chain, "-noout", "-fingerprint", "-sha256")
        self.fingerprint = shown.strip().split("=", 1)[1]


def openssl(*words):
    command = [need("openssl", "openssl"), *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class KedgeTls(Kedge):
    """`kedge serve` with ports for TLS beside those without."""

    def __init__(self, certificate):
        self.kv_tls_port, self.memcached_tls_port = free_port(), free_port()
        self.certificate = certificate
        super().__init__(fresh_dir("kedge"), more=[
            "--tls-cert", certificate.chain, "--tls-key", certificate.key, "--kv-tls-port", self.kv_tls_port,
            "--mgmt-tls-port", "off", "--memcached-tls-port", self.memcached_tls_port,
        ])

    @property
    def kv_tls_url(self):
        return f"couchbases://127.0.0.1:{self.kv_tls_port}/default"

    @property
    def trust(self):
        """The flags of commands that trust this server."""
        return ["--tls-fingerprint", self.certificate.fingerprint]


class MemcachedTls:
    """memcached with a port for TLS and, as it has one kind of port only, without one that is plain."""

    def __init__(self, certificate):
        self.memcached_tls_port = free_port()
        command = [
            program("memcached"), "-u", "nobody", "-l", "127.0.0.1", "-p", self.memcached_tls_port, "-t", SERVER_THREADS, "-m", 4096,
            "-Z", "-o", f"ssl_chain_cert={certificate.chain},ssl_key={certificate.key}",
        ]
        self.process = Process("memcached-tls", command)
        wait_for_port(self.process, self.memcached_tls_port)


def memcached_has_tls():
    shown = subprocess.run([program("memcached"), "--help"], capture_output=True, text=True)
    return "--enable-ssl" in shown.stdout


def client_context():
    """A client that does not care whom it talks to: the certificate is made for this run."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
