"""The rivals of one node."""

import socket

import rivals
from harness import Process, free_port, fresh_dir, wait_for_port
from node import SERVER_THREADS

VALKEY = "valkey-server"


class Memcached:
    """memcached with as many threads as Kedge."""

    def __init__(self, connections=1024):
        self.port = free_port()
        command = [
            program("memcached"), "-u", "nobody", "-l", "127.0.0.1", "-p", self.port, "-t", SERVER_THREADS, "-m", 4096, "-c",
            connections,
        ]
        self.process, self.url = Process("memcached", command), f"memcached://127.0.0.1:{self.port}"
        wait_for_port(self.process, self.port)


class AppendOnly:
    """Redis or Valkey that syncs its log before it answers."""

    def __init__(self, name):
        port = free_port()
        command = [
            program(name), "--port", port, "--bind", "127.0.0.1", "--dir", fresh_dir(name), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--maxclients", "10000",
        ]
        self.process, self.url = Process(name, command), f"redis://127.0.0.1:{port}"
        wait_for_port(self.process, port)
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(b"PING\r\n")
            connection.recv(100)


def program(name):
    """The path of a rival; None if it is not there and Debian has no package of it."""
    if name == "memcached":
        return rivals.binary(name, "memcached", "memcached")
    if name == "redis":
        return rivals.binary(name, "redis-server", "redis-server")
    return rivals.binary(name, VALKEY)


def append_only():
    """The names of the rivals of persisted writes."""
    return ["redis", "valkey"] if program("valkey") else ["redis"]


def versions(*names):
    """The versions of rivals by name."""
    return {name: rivals.version(program(name)) for name in names}
