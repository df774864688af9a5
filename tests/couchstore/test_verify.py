"""Files whose every byte is sound and that say something wrong: each rule of `verify` alone finds
them. They are made by a small writer of its own, so no flipped bit and no checksum gives it away."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from checksums import checksum  # noqa: E402
from couchfile import BLOCK, CouchFile, Damage  # noqa: E402
from verify import check_file  # noqa: E402

DELETED = 1 << 47


def big(number, length):
    return number.to_bytes(length, "big")


def lengths(key, value):
    return big(key << 28 | value, 5)


def as_snappy(plain):
    """One literal."""
    out, rest = bytearray(), len(plain)
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out) + b"\xf8" + (len(plain) - 1).to_bytes(3, "little") + plain


class Doc:
    """A document whose body is in the file already."""

    def __init__(self, key, seqno, size, offset, **wrong):
        self.key, self.seqno, self.size, self.offset = key, seqno, size, offset
        self.deleted, self.rev, self.content_meta, self.rev_meta = False, 1, 0, b"\0" * 18
        self.__dict__.update(wrong)

    def pointer(self):
        return big(self.offset | (DELETED if self.deleted else 0), 6)

    def changed(self, **wrong):
        return Doc(**{**self.__dict__, **wrong})

    def by_id(self):
        fixed = big(self.seqno, 6) + big(self.size, 4) + self.pointer() + big(self.rev, 6)
        return self.key, fixed + bytes([self.content_meta]) + self.rev_meta

    def by_seqno(self):
        fixed = lengths(len(self.key), self.size) + self.pointer() + big(self.rev, 6)
        return big(self.seqno, 6), fixed + bytes([self.content_meta]) + self.key + self.rev_meta


class File:
    """Appends chunks and headers."""

    def __init__(self):
        self.data = bytearray()
        self.header({}, update_seq=0)

    def put(self, run):
        """Appends a run of payload bytes and returns where it starts."""
        start = len(self.data)
        for byte in run:
            if len(self.data) % BLOCK == 0:
                self.data.append(0)
            self.data.append(byte)
        return start

    def chunk(self, body):
        return self.put(big(len(body) | 1 << 31, 4) + big(checksum(14, body), 4) + body), 8 + len(body)

    def node(self, entries, leaf=True):
        plain = bytes([leaf]) + b"".join(lengths(len(k), len(v)) + k + v for k, v in entries)
        return self.chunk(as_snappy(plain))

    def header(self, roots, update_seq=2, previous=(1 << 47) - 1, version=14):
        """`roots` are triples of offset, subtree size and reduce, by the names of the trees."""
        offset = -(-len(self.data) // BLOCK) * BLOCK
        self.data += bytes(offset - len(self.data))
        packed = [roots.get(name) for name in ("seqno", "id", "local")]
        packed = [big(r[0], 6) + big(r[1], 6) + r[2] if r else b"" for r in packed]
        body = bytes([version]) + big(update_seq, 6) + bytes(12)
        body += b"".join(big(len(root), 2) for root in packed) + bytes(8) + big(previous << 1, 6)
        body += b"".join(packed)
        self.data += b"\1" + big(4 + len(body), 4) + big(checksum(14, body), 4) + body
        return offset


def id_reduce(docs):
    deleted = sum(doc.deleted for doc in docs)
    return big(len(docs) - deleted, 5) + big(deleted, 5) + big(sum(doc.size for doc in docs), 6)


def build(by_id=None, by_seqno=None, header=None, roots=None, local=()):
    """A file of two documents in one leaf of each tree. What is given replaces or changes a part."""
    file = File()
    docs = []
    for seqno, key in enumerate((b"\0a", b"\0b"), 1):
        offset, size = file.chunk(b"body of " + key)
        docs.append(Doc(key, seqno, size, offset))
    by_id = by_id(docs) if by_id else docs
    by_seqno = by_seqno(docs) if by_seqno else docs
    found = {
        "id": (*file.node([doc.by_id() for doc in by_id]), id_reduce(by_id)),
        "seqno": (*file.node([doc.by_seqno() for doc in by_seqno]), big(len(by_seqno), 5)),
    }
    if local:
        found["local"] = (*file.node(local), b"")
    found = roots(file, found) if roots else found
    file.header(found, **{"previous": 0, **(header or {})})
    return CouchFile(bytes(file.data))


def both(change):
    return {"by_id": change, "by_seqno": change}


def last(**wrong):
    """Changes the second of two documents."""
    return lambda docs: [docs[0], docs[1].changed(**wrong)]


def interior(file, roots, key=b"\0b", size=0, reduce=None, child=None):
    """Puts a node above the leaf of the tree by id."""
    offset, leaf_size, leaf_reduce = roots["id"]
    reduce = leaf_reduce if reduce is None else reduce
    value = big(child or offset, 6) + big(leaf_size + size, 6) + big(len(reduce), 2) + reduce
    top, top_size = file.node([(key, value)], leaf=False)
    return {**roots, "id": (top, top_size + leaf_size + size, reduce)}


def with_root(name, offset=0, size=0, reduce=None):
    """Adds to a root's offset and size, or replaces its reduce."""

    def change(_, roots):
        root = roots[name]
        return {**roots, name: (root[0] + offset, root[1] + size, reduce or root[2])}

    return change


class Wrong(unittest.TestCase):
    """Each file breaks one rule."""

    def refused(self, expected, **parts):
        with self.assertRaises(Damage) as caught:
            check_file(build(**parts))
        self.assertIn(expected, caught.exception.what)

    def test_the_file_that_is_changed_is_sound(self):
        found = check_file(build(local=[(b"_local/a", b"1"), (b"_local/b", b"")]), every_header=True)
        self.assertEqual((found["live"], found["deleted"], found["locals"]), (2, 0, 2))
        self.assertEqual((found["headers"], found["chain"]), (2, 2))
        found = check_file(build(**both(last(deleted=True))))
        self.assertEqual((found["live"], found["deleted"]), (1, 1))
        check_file(build(roots=interior))

    def test_order_of_keys(self):
        self.refused("expected a key above", by_id=lambda docs: docs[::-1])
        self.refused("expected a key above", by_seqno=lambda docs: docs[::-1])
        self.refused("expected a key above", by_id=lambda docs: [docs[0], docs[0]])
        self.refused("expected a key above", local=[(b"b", b""), (b"a", b"")])

    def test_sums(self):
        self.refused("as reduce of node", roots=with_root("id", reduce=bytes(16)))
        self.refused("as reduce of node", roots=with_root("seqno", reduce=big(3, 5)))
        self.refused("as subtree size of node", roots=with_root("id", size=1))
        self.refused("as subtree size of node", roots=with_root("seqno", size=-1))
        wrong_size = lambda file, roots: interior(file, roots, size=1)
        self.refused("as subtree size of node", roots=wrong_size)
        wrong_reduce = lambda file, roots: interior(file, roots, reduce=bytes(16))
        self.refused("as reduce of node", roots=wrong_reduce)
        self.refused("expected the id root to have", roots=lambda f, r: interior(f, r, reduce=b"x"))

        def short(file, roots):
            offset, size, _ = interior(file, roots, reduce=b"x")["id"]
            return {**roots, "id": (offset, size, roots["id"][2])}

        self.refused("expected a reduce of 16 bytes", roots=short)

    def test_interior_nodes(self):
        self.refused("expected the last key", roots=lambda f, r: interior(f, r, key=b"\0c"))
        forward = lambda file, roots: interior(file, roots, child=len(file.data))
        self.refused("expected a pointer to a node before", roots=forward)

    def test_what_the_two_trees_say(self):
        for wrong in ({"rev": 2}, {"rev_meta": b""}, {"content_meta": 3}, {"deleted": True},
                      {"key": b"\0c"}, {"offset": 1}, {"size": 1}, {"seqno": 3}):
            with self.subTest(wrong):
                self.refused("expected the trees to agree", by_seqno=last(**wrong))
        self.refused("expected 2 entries by seqno", by_seqno=lambda docs: docs[:1])
        self.refused("expected the trees to agree", by_id=lambda docs: docs[:1])

    def test_seqnos(self):
        self.refused("expected seqnos up to 1", header={"update_seq": 1})

    def test_bodies(self):
        self.refused("bytes on disk", **both(last(size=19)))
        self.refused("expected size 0 of the body", **both(last(offset=0)))
        check_file(build(**both(last(offset=0, size=0))))
        self.refused("expected known bits", **both(last(content_meta=4)))
        self.refused("is not Snappy", **both(last(content_meta=0x80)))
        first = lambda docs: [docs[0], docs[1].changed(offset=docs[0].offset, size=docs[0].size)]
        self.refused("expected a body behind a body", **both(first))
        self.refused("the file ends", **both(last(offset=1 << 40)))

    def test_nothing_behind_the_header_belongs_to_it(self):
        # The document points to a sound chunk, which is behind the header that has the document.
        end = len(build(**both(last(offset=1))).data)
        file = File()
        file.data = bytearray(build(**both(last(offset=end))).data)
        offset, _ = file.chunk(b"body of " + b"\0b")
        self.assertEqual(offset, end)
        with self.assertRaises(Damage) as caught:
            check_file(CouchFile(bytes(file.data)))
        self.assertIn("expected a body before the header", caught.exception.what)

    def test_headers(self):
        self.refused("expected an earlier previous header", header={"previous": 1 << 20})
        self.refused("expected a header block", header={"previous": 7})
        self.refused("expected header version 11 to 14", header={"version": 15})
        self.refused("to fill a header", header={"version": 13})
        self.refused("expected the id root before", roots=with_root("id", offset=1 << 20))


if __name__ == "__main__":
    unittest.main()
