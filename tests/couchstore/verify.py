"""Walks the trees of a couchstore file and insists on everything that must hold.

For one header: blocks, checksums, order of keys, interior keys equal to the last key of the child,
reduces, subtree sizes, children before their parents and all of it before the header, both document
trees the same field by field, bodies present and of the stated size, and no two chunks overlapping.
For the file: every header sound, of one version, and the chain of headers unbroken.
"""

from couchfile import (
    DATA_BLOCK,
    HEADER_BLOCK,
    METADATA_BLOCK,
    REDUCE_BYTES,
    Damage,
    Encrypted,
    Fields,
    Root,
)
from documents import COMPRESSED, body_chunk, from_id_entry, from_seqno_entry, plain_body

# Far more than any tree needs: interior nodes have at least two entries where keys are not huge.
MAX_DEPTH = 100


class Tree:
    """One walk over one tree of one commit."""

    def __init__(self, file, header, name, extents=None, nodes=None):
        """Appends to `extents` where its chunks are, and to `nodes` what it visits: depth, pointer, node."""
        self.file, self.header, self.name = file, header, name
        self.extents = [] if extents is None else extents
        self.nodes = [] if nodes is None else nodes
        self.last_key = None

    def walk(self):
        """Yields node offset, key and value of every leaf entry; raises Damage at the first fault."""
        if self.header.encrypted:
            raise Encrypted("the file is encrypted and this reader has no AES")
        root = self.header.roots.get(self.name)
        if root is not None:
            yield from self._node(root, self.header.offset, None, 0)

    def _node(self, pointer, parent, key, depth):
        """Walks the node at `pointer`, which stands at `parent` beside `key`, and returns its reduce."""
        offset = pointer.offset
        # Nothing is ever written before what it points to, so a walk cannot go round.
        if not 0 < offset < parent:
            raise Damage(parent, f"expected a pointer to a node before, found {offset}")
        if depth > MAX_DEPTH:
            raise Damage(offset, f"expected a tree of at most {MAX_DEPTH} levels")
        node = self.file.node(offset, self.header.version)
        if node.end > self.header.offset:
            raise Damage(offset, "expected a tree node that ends before the header")
        self.extents.append((offset, node.end, "a tree node"))
        self.nodes.append((depth, pointer, node))
        if key is not None and node.entries[-1][0] != key:
            raise Damage(offset, f"expected the last key {key.hex()}, found {node.entries[-1][0].hex()}")
        if node.is_leaf:
            size, reduce = yield from self._leaf(node)
        else:
            size, reduce = yield from self._interior(node, depth)
        if size != pointer.subtree_size:
            raise Damage(parent, f"expected {size} as subtree size of node {offset}, found {pointer.subtree_size}")
        if reduce != pointer.reduce:
            raise Damage(parent, f"expected {reduce.hex()} as reduce of node {offset}, found {pointer.reduce.hex()}")
        return reduce

    def _leaf(self, node):
        sums = [0, 0, 0]
        for key, value in node.entries:
            if self.last_key is not None and key <= self.last_key:
                raise Damage(node.offset, f"expected a key above {self.last_key.hex()}, found {key.hex()}")
            self.last_key = key
            if self.name == "id":
                document = from_id_entry(node.offset, key, value)
                sums[1 if document.deleted else 0] += 1
                sums[2] += document.body_size
            yield node.offset, key, value
        return node.chunk_size, encode_reduce(self.name, len(node.entries), sums)

    def _interior(self, node, depth):
        size, total = node.chunk_size, [0, 0, 0]
        for key, value in node.entries:
            fields = Fields(value, node.offset, "a child pointer")
            offset, child_size = fields.number(6), fields.number(6)
            reduce = fields.take(fields.number(2))
            if not fields.is_empty() or len(reduce) != REDUCE_BYTES[self.name]:
                raise Damage(node.offset, f"expected a reduce of {REDUCE_BYTES[self.name]} bytes")
            reduce = yield from self._node(Root(offset, child_size, reduce), node.offset, key, depth + 1)
            size += child_size
            total = [a + b for a, b in zip(total, decode_reduce(self.name, reduce))]
        return size, encode_reduce(self.name, total[0], total)


def decode_reduce(name, reduce):
    """The numbers of a reduce: count, or live and deleted and bytes, or nothing."""
    fields = Fields(reduce, 0, "a reduce")
    if name == "seqno":
        return [fields.number(5), 0, 0]
    if name == "id":
        return [fields.number(5), fields.number(5), fields.number(6)]
    return [0, 0, 0]


def encode_reduce(name, count, sums):
    if name == "seqno":
        return count.to_bytes(5, "big")
    if name == "id":
        return sums[0].to_bytes(5, "big") + sums[1].to_bytes(5, "big") + sums[2].to_bytes(6, "big")
    return b""


def documents(file, header, order):
    """The documents of one tree, `order` being "id" or "seqno". The tree is verified on the way."""
    decode = from_id_entry if order == "id" else from_seqno_entry
    for offset, key, value in Tree(file, header, order).walk():
        yield decode(offset, key, value)


def locals_of(file, header):
    """Names and values of the local documents."""
    return [(key, value) for _, key, value in Tree(file, header, "local").walk()]


def _body(file, header, document, extents):
    """Verifies one body: there, of the stated size, before the header."""
    stored, end = body_chunk(file, header.version, document)
    if stored is None:
        if document.body_size != 0:
            raise Damage(header.offset, f"expected size 0 of the body of {document.key.hex()}, which has none")
        return
    where = document.body_offset
    if not 0 < where < end <= header.offset:
        raise Damage(where, "expected a body before the header")
    if document.body_size != 8 + len(stored):
        raise Damage(where, f"expected a body of {document.body_size} bytes on disk, found {8 + len(stored)}")
    if document.content_meta & ~(COMPRESSED | 3):
        raise Damage(where, f"expected known bits of content_meta, found {document.content_meta:#x}")
    plain_body(document, stored)
    extents.append((where, end, "a body"))


def check_header(file, header):
    """Verifies everything that `header` reaches; returns what it found as a dictionary."""
    extents = [(header.offset, header.end, "a header")]
    by_id = {}
    for offset, key, value in Tree(file, header, "id", extents).walk():
        by_id[key] = from_id_entry(offset, key, value)
    count, highest = 0, 0
    for offset, key, value in Tree(file, header, "seqno", extents).walk():
        document = from_seqno_entry(offset, key, value)
        if by_id.get(document.key) != document:
            raise Damage(offset, f"expected the trees to agree: {document} and {by_id.get(document.key)}")
        _body(file, header, document, extents)
        count, highest = count + 1, document.seqno
    # Keys are unique in one tree and seqnos in the other, so equal numbers and equal entries are a bijection.
    if count != len(by_id):
        raise Damage(header.offset, f"expected {len(by_id)} entries by seqno, found {count}")
    if highest > header.update_seq:
        raise Damage(header.offset, f"expected seqnos up to {header.update_seq}, found {highest}")
    local = list(Tree(file, header, "local", extents).walk())
    _no_overlap(extents)
    deleted = sum(document.deleted for document in by_id.values())
    return {
        "header": header.offset,
        "version": header.version,
        "update_seq": header.update_seq,
        "purge_seq": header.purge_seq,
        "live": count - deleted,
        "deleted": deleted,
        "locals": len(local),
    }


def _no_overlap(extents):
    """No chunk shares a byte with another. Equal ones were reached twice, which is as bad."""
    extents.sort()
    for (start, end, what), (next_start, _, next_what) in zip(extents, extents[1:]):
        if next_start < end:
            raise Damage(next_start, f"expected {next_what} behind {what} at {start} that ends at {end}")


def all_headers(file, newest):
    """The headers up to `newest`, oldest first, and the offsets of blocks that say that they are one and
    are not: a crash may have left such, and no later commit minds them."""
    headers, damaged = [], []
    for offset, kind in file.block_types():
        if offset > newest.offset:
            break
        if kind == HEADER_BLOCK:
            try:
                headers.append(file.header_at(offset))
            except Damage:
                damaged.append(offset)
        elif kind != DATA_BLOCK and (kind != METADATA_BLOCK or offset != 0):
            raise Damage(offset, f"expected a block of type 0 or 1, found {kind}")
    return headers, damaged


def check_file(file, every_header=False):
    """Verifies the newest commit, or each of them, and the headers themselves."""
    newest = file.newest_header()
    if newest is None:
        raise Damage(0, "expected at least one header, found none")
    headers, damaged = all_headers(file, newest)
    has_metadata = file.metadata() is not None
    for header in headers:
        if header.version != newest.version:
            raise Damage(header.offset, f"expected version {newest.version} in each header, found {header.version}")
        if header.encrypted != has_metadata:
            raise Damage(header.offset, "expected the header and block 0 to agree on whether the file is encrypted")
    chain = [header.offset for header in file.chain(newest)]
    found = check_header(file, newest)
    if every_header:
        for header in headers[:-1]:
            check_header(file, header)
    found["headers"], found["chain"] = len(headers), len(chain)
    found["damaged_headers"] = damaged
    return found
