"""A Kedge server whose bucket is encrypted at rest."""

import json
import socket
import subprocess

import kedge_server
from management import Management

SECONDS = 60


class Node(kedge_server.Server):
    """A server that is started with one master key or another. The environment has no credentials but those of the test."""

    def __init__(self, environment):
        super().__init__()
        self.environment = {
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.directory),
            **environment,
        }

    @property
    def directory(self):
        return self._directory

    def serve(self, key, previous=None, wait="60s", *more):
        self._arguments = (
            "--encryption-at-rest", "true",
            "--encryption-master-key", key,
            "--encryption-master-key-timeout", wait,
            *(("--encryption-previous-master-key", previous) if previous else ()),
            *more,
        )
        return self.start()

    def refusal(self, key, previous=None, wait="0s"):
        """The message of a start that fails; its exit code is that of an error."""
        before = len(self.stderr()) if (self.directory / "stderr").exists() else 0
        try:
            self.serve(key, previous, wait)
        except RuntimeError:
            assert self._process.wait(SECONDS) == 1
            return self.stderr()[before:]
        raise AssertionError(f"the server has started with {key}")

    @property
    def admin(self):
        return Management(self.mgmt_port, kedge_server.USER, kedge_server.PASSWORD)

    def tool(self, *words):
        """A command of Kedge that has to succeed."""
        place = f"couchbase://127.0.0.1:{self.kv_port}/{kedge_server.BUCKET}"
        access = ["-U", place, "-u", kedge_server.USER, "-P", kedge_server.PASSWORD]
        command = [str(kedge_server.binary()), *words, *access]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self):
        return json.loads(self.tool("encryption", "status", "--json"))

    def master_key(self):
        (key,) = self.admin.do("GET", "/settings/encryptionKeys").json()
        return key

    def keyring(self):
        return (self.directory / "data/buckets/default/encryption.keys").read_bytes()

    def wrapped_key(self):
        """The name of the master key and the wrapped key in the keyring: docs/reference/formats/keyring.md."""
        rest, fields = self.keyring()[12:], []
        for _ in range(2):
            size = int.from_bytes(rest[:2], "little")
            fields.append(rest[2:2 + size])
            rest = rest[2 + size:]
        return fields[0].decode(), fields[1]

    def _memcached(self, request):
        with socket.create_connection(("127.0.0.1", self.memcached_port), SECONDS) as connection:
            connection.sendall(request + b"quit\r\n")
            return connection.makefile("rb").read()

    def set(self, key, value):
        reply = self._memcached(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value.encode()))
        assert reply == b"STORED\r\n", reply

    def get(self, key):
        head, _, rest = self._memcached(b"get %s\r\n" % key.encode()).partition(b"\r\n")
        return rest.removesuffix(b"\r\nEND\r\n").decode() if head.startswith(b"VALUE") else None

    def has_on_disk(self, text):
        files = (path for path in (self.directory / "data").rglob("*") if path.is_file())
        return any(text.encode() in path.read_bytes() for path in files)
