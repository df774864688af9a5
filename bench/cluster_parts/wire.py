"""A connection of the binary protocol, with as little as the probes of this benchmark need."""

import json
import socket
import struct
import zlib

from node import PASSWORD, USER

GET, SET, GET_REPLICA, SASL_AUTH, HELLO, SELECT_BUCKET, GET_CLUSTER_CONFIG = 0x00, 0x01, 0x83, 0x21, 0x1F, 0x89, 0xB5
SYNC_REPLICATION, ALT_REQUEST, XERROR, SELECT = 0x11, 0x10, 0x07, 0x08
SUCCESS, NOT_FOUND, NOT_MY_VBUCKET = 0x00, 0x01, 0x07
NO_DURABILITY, MAJORITY, PERSIST_TO_MAJORITY = 0, 1, 3


def vbucket(key, vbuckets=1024):
    return ((zlib.crc32(key) >> 16) & 0x7FFF) % vbuckets


def key_in(vb, prefix="probe", vbuckets=1024):
    """A key of that vBucket."""
    number = 0
    while vbucket(key := f"{prefix}-{number}".encode(), vbuckets) != vb:
        number += 1
    return key


def chains_of(config):
    """The chains of a bucket's configuration, with ports instead of positions in the list of servers."""
    server_map = config["vBucketServerMap"]
    ports = [int(server.rsplit(":", 1)[1]) for server in server_map["serverList"]]
    return [[ports[at] if at >= 0 else None for at in chain] for chain in server_map["vBucketMap"]]


class Connection:
    """Logged in, with the bucket selected. `ask` returns status and value."""

    def __init__(self, host, port, bucket="default", timeout_s=10):
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        features = struct.pack(">4H", SYNC_REPLICATION, ALT_REQUEST, XERROR, SELECT)
        login = f"\0{USER}\0{PASSWORD}".encode()
        for opcode, key, value in (
            (HELLO, b"bench", features), (SASL_AUTH, b"PLAIN", login), (SELECT_BUCKET, bucket.encode(), b""),
        ):
            status, _ = self.ask(opcode, key, value)
            if status != SUCCESS:
                raise ConnectionError(f"status {status:#x} to opcode {opcode:#x}")

    def ask(self, opcode, key=b"", value=b"", extras=b"", vb=0, level=0):
        # Flexible framing (magic 0x08): object 1, the durability requirement, is one byte long without a timeout.
        framing = bytes([0x11, level]) if level else b""
        lengths = struct.pack(">BBBB", 0x08, opcode, len(framing), len(key)) if level else struct.pack(">BBH", 0x80, opcode, len(key))
        body = framing + extras + key + value
        self.socket.sendall(lengths + struct.pack(">BBHIIQ", len(extras), 0, vb, len(body), 0, 0) + body)
        head = self._exactly(24)
        magic, _, two, extras_bytes, _, status, body_bytes = struct.unpack(">BBHBBHI", head[:12])
        framing_bytes, key_bytes = (two >> 8, two & 0xFF) if magic == 0x18 else (0, two)
        body = self._exactly(body_bytes)
        return status, body[framing_bytes + extras_bytes + key_bytes:]

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def set(self, key, value, level=0, vbuckets=1024):
        return self.ask(SET, key, value, bytes(8), vbucket(key, vbuckets), level)[0]

    def get(self, key, vbuckets=1024):
        return self.ask(GET, key, vb=vbucket(key, vbuckets))

    def chains(self):
        """The map that clients get: for each vBucket the key-value ports of its active and its replicas, None for a missing
        copy."""
        status, value = self.ask(GET_CLUSTER_CONFIG)
        if status != SUCCESS:
            raise ConnectionError(f"status {status:#x} to a request for the map")
        return chains_of(json.loads(value))

    def get_replica(self, key, vbuckets=1024):
        """The value, or None."""
        status, value = self.ask(GET_REPLICA, key, vb=vbucket(key, vbuckets))
        if status not in (SUCCESS, NOT_FOUND):
            raise ConnectionError(f"status {status:#x} to a read from a replica")
        return value if status == SUCCESS else None

    def close(self):
        self.socket.close()
