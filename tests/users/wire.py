"""A few commands of the binary protocol, with their statuses."""

import socket
import struct

SECONDS = 90

SUCCESS, NOT_FOUND, AUTH_ERROR, ACCESS_DENIED, TEMPORARY_FAILURE = 0x00, 0x01, 0x20, 0x24, 0x86
AUTH_STALE = 0x1F
GET, SET, SASL_LIST, SASL_AUTH, HELLO, SELECT_BUCKET = 0x00, 0x01, 0x20, 0x21, 0x1F, 0x89
XERROR = 0x07


class Client:
    """A connection without a login."""

    def __init__(self, port, tls=None):
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        # Without the feature XERROR a refused command ends the connection.
        assert self.call(HELLO, b"test", struct.pack(">H", XERROR))[0] == SUCCESS

    def close(self):
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _receive(self, size):
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data

    def send(self, opcode, key=b"", value=b"", extras=b""):
        body = extras + key + value
        header = struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(body), 0, 0)
        self._socket.sendall(header + body)

    def reply(self):
        header = self._receive(24)
        _, _, key, extras, _, status, body = struct.unpack(">BBHBBHI", header[:12])
        return status, self._receive(body)[extras + key:]

    def call(self, *arguments, **named):
        self.send(*arguments, **named)
        return self.reply()

    def plain(self, user, password):
        """The status of a login with SASL PLAIN."""
        message = b"\0" + user.encode() + b"\0" + password.encode()
        return self.call(SASL_AUTH, b"PLAIN", message)[0]

    def select(self, bucket="default"):
        return self.call(SELECT_BUCKET, bucket.encode())[0]

    def get(self, key):
        return self.call(GET, key.encode())[0]

    def set(self, key, value):
        return self.call(SET, key.encode(), value.encode(), extras=bytes(8))[0]


def login(port, user, password):
    with Client(port) as client:
        return client.plain(user, password)
