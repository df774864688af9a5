"""The bytes of a couchstore file: blocks, chunks, headers and B+tree nodes.

Written from the format document alone ("couchstore file format", sections 1, 2 and 5). All numbers
are big-endian. Everything that is not as the document says raises `Damage` with the offset of it.
"""

from dataclasses import dataclass

from checksums import checksum
from raw_snappy import SnappyError, decompress

BLOCK = 4096
DATA_BLOCK, HEADER_BLOCK, METADATA_BLOCK = 0, 1, 2
VERSIONS = (11, 12, 13, 14)
NO_PREVIOUS = (1 << 47) - 1
# Version -> bytes of a header's body in front of the roots.
FIXED_BYTES = {11: 25, 12: 25, 13: 33, 14: 39}
ROOT_BYTES = {"seqno": 17, "id": 28, "local": 12}
REDUCE_BYTES = {"seqno": 5, "id": 16, "local": 0}


class Damage(Exception):
    """Something at `offset` is not what it has to be."""

    def __init__(self, offset, what):
        super().__init__(f"at byte {offset}: {what}")
        self.offset = offset
        self.what = what


class UnknownVersion(Damage):
    """A header of a version that this reader does not know: no older one is tried in its place."""


class Encrypted(Exception):
    """What was asked for is encrypted, and this reader has no keys."""


def number(data):
    return int.from_bytes(data, "big")


class Fields:
    """Takes numbers and bytes from the front; too few bytes left is damage of the thing at `offset`."""

    def __init__(self, data, offset, what):
        self.data, self.at, self.offset, self.what = data, 0, offset, what

    def take(self, length):
        if self.at + length > len(self.data):
            raise Damage(self.offset, f"expected {length} more bytes of {self.what}")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, length):
        return number(self.take(length))

    def lengths(self):
        """The packed pair of lengths: 12 bits and 28 bits."""
        packed = self.number(5)
        return packed >> 28, packed & 0xFFFFFFF

    def rest(self):
        return self.take(len(self.data) - self.at)

    def is_empty(self):
        return self.at == len(self.data)


@dataclass(frozen=True)
class Root:
    """Where a tree starts, how large it is, and what it sums up."""

    offset: int
    subtree_size: int
    reduce: bytes


@dataclass(frozen=True)
class Header:
    """One commit."""

    offset: int
    end: int
    version: int
    update_seq: int
    purge_seq: int
    timestamp: int
    previous: int | None
    encrypted: bool
    roots: dict


@dataclass(frozen=True)
class Node:
    """A B+tree node: `entries` are pairs of key and value, in the order of the file."""

    offset: int
    end: int
    chunk_size: int
    is_leaf: bool
    entries: list


class CouchFile:
    """A whole file in memory. As it does not change, a chunk that was read and found sound stays so."""

    def __init__(self, data):
        self.data = data
        self.chunks = {}
        self.nodes = {}

    @classmethod
    def open(cls, path):
        with open(path, "rb") as file:
            return cls(file.read())

    # Blocks

    def run(self, position, length, what):
        """`length` payload bytes from `position`, and the position behind them. Only a byte that says
        "data block" may be crossed: a header is never in the middle of anything."""
        out = bytearray()
        while len(out) < length:
            if position % BLOCK == 0:
                if position >= len(self.data):
                    raise Damage(position, f"expected more of {what}, the file ends")
                if self.data[position] != DATA_BLOCK:
                    found = self.data[position]
                    raise Damage(position, f"expected a data block within {what}, found type {found}")
                position += 1
            step = min(length - len(out), BLOCK - position % BLOCK, len(self.data) - position)
            if step <= 0:
                raise Damage(position, f"expected more of {what}, the file ends")
            out += self.data[position : position + step]
            position += step
        return bytes(out), position

    # Chunks

    def chunk(self, offset, version, what):
        """The body of the data chunk at `offset`, and where it ends."""
        if (offset, version) not in self.chunks:
            self.chunks[offset, version] = self._read_chunk(offset, version, what)
        return self.chunks[offset, version]

    def _read_chunk(self, offset, version, what):
        head, position = self.run(offset, 8, what)
        length, crc = number(head[:4]), number(head[4:])
        if not length & 0x80000000:
            raise Damage(offset, f"expected the top bit of the length of {what} to be set")
        length &= 0x7FFFFFFF
        if length > len(self.data):
            raise Damage(offset, f"expected {what} to fit the file, it claims {length} bytes")
        body, end = self.run(position, length, what)
        if checksum(version, body) != crc:
            raise Damage(offset, f"expected the checksum {crc:08x} of {what}")
        return body, end

    # Headers

    def block_types(self):
        """Offset and type of every block."""
        return [(at, self.data[at]) for at in range(0, len(self.data), BLOCK)]

    def _block_chunk(self, offset, what):
        """A header's chunk: one that never leaves its block. The length counts the checksum."""
        end = min(offset + BLOCK, len(self.data))
        head = self.data[offset + 1 : offset + 9]
        if len(head) < 8:
            raise Damage(offset, f"expected the length of {what}, the file ends")
        length, crc = number(head[:4]), number(head[4:])
        if not 4 <= length <= 1024:
            raise Damage(offset, f"expected a length of 4 to 1024 for {what}, found {length}")
        body = self.data[offset + 9 : offset + 5 + length]
        if offset + 5 + length > end:
            raise Damage(offset, f"expected {length - 4} bytes of {what}, the file ends")
        return body, crc, offset + 5 + length

    def header_at(self, offset):
        """The header in the block at `offset`."""
        if offset % BLOCK != 0 or offset >= len(self.data) or self.data[offset] != HEADER_BLOCK:
            raise Damage(offset, "expected a header block")
        body, crc, end = self._block_chunk(offset, "a header")
        if not body:
            raise Damage(offset, "expected a header of at least one byte")
        version = body[0]
        if version not in VERSIONS:
            raise UnknownVersion(offset, f"expected header version 11 to 14, found {version}")
        if checksum(version, body) != crc:
            raise Damage(offset, f"expected the checksum {crc:08x} of the header")
        return self._header(offset, end, body)

    def _header(self, offset, end, body):
        fields = Fields(body, offset, "the header")
        version = fields.number(1)
        update_seq, purge_seq, purge_ptr = fields.number(6), fields.number(6), fields.number(6)
        if purge_ptr > offset:
            raise Damage(offset, f"expected a purge pointer before the header, found {purge_ptr}")
        sizes = {name: fields.number(2) for name in ("seqno", "id", "local")}
        timestamp = fields.number(8) if version >= 13 else 0
        previous = fields.number(6) if version >= 14 else (NO_PREVIOUS << 1)
        if len(body) != FIXED_BYTES[version] + sum(sizes.values()):
            raise Damage(offset, f"expected the roots' sizes to fill a header of {len(body)} bytes")
        roots = {}
        for name, size in sizes.items():
            if size not in (0, ROOT_BYTES[name]):
                raise Damage(offset, f"expected the {name} root to have 0 or {ROOT_BYTES[name]} bytes, found {size}")
            if size:
                roots[name] = Root(fields.number(6), fields.number(6), fields.take(size - 12))
        for name, root in roots.items():
            if not 0 < root.offset < offset:
                raise Damage(offset, f"expected the {name} root before the header, found {root.offset}")
        encrypted = bool(previous & 1)
        previous = None if previous >> 1 == NO_PREVIOUS else previous >> 1
        return Header(offset, end, version, update_seq, purge_seq, timestamp, previous, encrypted, roots)

    def newest_header(self, before=None, recover=False):
        """The newest header, or the newest below `before`. A block that should be a header and is not
        raises, unless `recover`; then older ones are tried. `None` if there is none at all."""
        if before is None:
            offset = max(len(self.data) - 2, 0) // BLOCK * BLOCK
        else:
            offset = before - BLOCK
        while offset >= 0 and offset < len(self.data):
            kind = self.data[offset]
            if kind == HEADER_BLOCK:
                try:
                    return self.header_at(offset)
                except UnknownVersion:
                    raise
                except Damage:
                    # Compacted files of old libraries may start with a stray header byte.
                    if offset != 0 and not recover:
                        raise
            elif kind not in (DATA_BLOCK, METADATA_BLOCK) and not recover:
                raise Damage(offset, f"expected a block of type 0, 1 or 2, found {kind}")
            offset -= BLOCK
        return None

    def previous_header(self, header):
        """The commit before `header`: by its pointer, or by searching where versions have none."""
        if header.version < 14:
            return self.newest_header(before=header.offset)
        if header.previous is None:
            return None
        if header.previous >= header.offset:
            raise Damage(header.offset, f"expected an earlier previous header, found {header.previous}")
        # Compacted files say 0, where data is.
        if header.previous == 0 and self.data[0] != HEADER_BLOCK:
            return None
        return self.header_at(header.previous)

    def chain(self, header):
        """`header` and those before it, newest first."""
        while header is not None:
            yield header
            header = self.previous_header(header)

    def metadata(self):
        """Key id and context of an encrypted file's first block, or `None`."""
        if not self.data or self.data[0] != METADATA_BLOCK:
            return None
        body, crc, _ = self._block_chunk(0, "the metadata header")
        if checksum(14, body) != crc:
            raise Damage(0, f"expected the checksum {crc:08x} of the metadata header")
        fields = Fields(body, 0, "the metadata header")
        version = fields.number(1)
        key_id = fields.take(fields.number(1))
        context = fields.take(fields.number(1))
        return {"version": version, "key_id": key_id.decode("utf-8", "replace"), "context": context.hex()}

    # Nodes

    def node(self, offset, version):
        """The tree node at `offset`."""
        if (offset, version) not in self.nodes:
            self.nodes[offset, version] = self._read_node(offset, version)
        return self.nodes[offset, version]

    def _read_node(self, offset, version):
        body, end = self.chunk(offset, version, "a tree node")
        try:
            plain = decompress(body)
        except SnappyError as error:
            raise Damage(offset, f"a tree node is not Snappy: {error}") from None
        fields = Fields(plain, offset, "a tree node")
        kind = fields.number(1)
        if kind not in (0, 1):
            raise Damage(offset, f"expected node type 0 or 1, found {kind}")
        entries = []
        while not fields.is_empty():
            key_length, value_length = fields.lengths()
            entries.append((fields.take(key_length), fields.take(value_length)))
        if not entries:
            raise Damage(offset, "expected at least one entry in a tree node")
        return Node(offset, end, 8 + len(body), kind == 1, entries)
