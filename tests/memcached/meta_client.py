"""A small client for memcached's meta commands, written from memcached's doc/protocol.txt.

It shows requests and replies as they are, so that tests can speak of flags.
"""

import socket
from typing import NamedTuple


class Reply(NamedTuple):
    """A reply: `code` is HD, VA, EN, NS, EX, NF, MN, ME or an error line."""

    code: str
    flags: dict
    value: bytes | None = None
    line: str = ""


class MetaClient:
    def __init__(self, address, seconds=10):
        self._socket = socket.create_connection(address, seconds)
        self._reader = self._socket.makefile("rb")

    def close(self):
        self._reader.close()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self._socket.sendall(data if isinstance(data, bytes) else data.encode())

    def line(self):
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the server closed the connection after {line!r}")
        return line[:-2].decode("latin-1")

    def reply(self):
        line = self.line()
        code, *rest = line.split(" ")
        if code == "VA":
            size, *flags = rest
            value = self._reader.read(int(size) + 2)
            assert value.endswith(b"\r\n"), value
            return Reply(code, _flags(flags), value[:-2], line)
        if code in ("HD", "EN", "NS", "EX", "NF", "MN"):
            return Reply(code, _flags(rest), None, line)
        return Reply(code, {}, None, line)

    def call(self, line, value=None):
        """Sends one command, with its value when it has one, and returns the reply."""
        self.send(line.encode() + b"\r\n" + (b"" if value is None else value + b"\r\n"))
        return self.reply()

    def get(self, key, *flags):
        return self.call(" ".join(("mg", key, *flags)))

    def set(self, key, value, *flags):
        return self.call(" ".join(("ms", key, str(len(value)), *flags)), value)

    def delete(self, key, *flags):
        return self.call(" ".join(("md", key, *flags)))

    def arithmetic(self, key, *flags):
        return self.call(" ".join(("ma", key, *flags)))


def _flags(tokens):
    return {token[0]: token[1:] for token in tokens if token}
