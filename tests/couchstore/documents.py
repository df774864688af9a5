"""Documents and their kv metadata: the values of the trees' leaves, decoded.

Written from the format document alone ("couchstore file format", sections 2.2, 2.3 and 3).
"""

from dataclasses import dataclass

from couchfile import Damage, Fields, number
from raw_snappy import SnappyError, decompress

DELETED = 1 << 47
COMPRESSED = 0x80
SYSTEM_EVENTS, PREPARES = 1, 2
LEVELS = {1: "majority", 2: "majorityAndPersistOnMaster", 3: "persistToMajority"}
OPERATIONS = {0: "pending", 1: "commit", 2: "abort"}
DATATYPES = ((2, "snappy"), (1, "json"), (4, "xattr"))


@dataclass(frozen=True)
class Document:
    """What both trees say about one key."""

    key: bytes
    seqno: int
    rev: int
    deleted: bool
    content_meta: int
    rev_meta: bytes
    body_offset: int
    body_size: int


def _pointer(value):
    return value & ~DELETED, bool(value & DELETED)


def from_id_entry(offset, key, value):
    """An entry of the by-id tree; `offset` is that of its node."""
    fields = Fields(value, offset, "a by-id entry")
    seqno, size = fields.number(6), fields.number(4)
    body_offset, deleted = _pointer(fields.number(6))
    rev, content_meta = fields.number(6), fields.number(1)
    return Document(key, seqno, rev, deleted, content_meta, fields.rest(), body_offset, size)


def from_seqno_entry(offset, key, value):
    """An entry of the by-seqno tree; `offset` is that of its node."""
    if len(key) != 6:
        raise Damage(offset, f"expected a by-seqno key of 6 bytes, found {len(key)}")
    fields = Fields(value, offset, "a by-seqno entry")
    key_length, size = fields.lengths()
    body_offset, deleted = _pointer(fields.number(6))
    rev, content_meta = fields.number(6), fields.number(1)
    name = fields.take(key_length)
    return Document(name, number(key), rev, deleted, content_meta, fields.rest(), body_offset, size)


def body_chunk(file, version, document):
    """The stored bytes of a document's body and where their chunk ends; `None` twice if it has none."""
    if document.body_offset == 0:
        return None, None
    return file.chunk(document.body_offset, version, "a document's body")


def plain_body(document, stored):
    """The body without the compression of the store; that of a client stays."""
    if stored is None or not document.content_meta & COMPRESSED:
        return stored
    try:
        return decompress(stored)
    except SnappyError as error:
        raise Damage(document.body_offset, f"a document's body is not Snappy: {error}") from None


def leb128(data):
    """A number from the front of `data`, and what follows it; ValueError if there is none."""
    value = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return value, data[at + 1 :]
    raise ValueError("expected the end of a LEB128 number")


def collection_of(key):
    """Whether it is a prepare's, the collection id, and the logical key."""
    collection, rest = leb128(key)
    if collection != PREPARES:
        return False, collection, rest
    collection, rest = leb128(rest)
    return True, collection, rest


def key_text(key):
    """The key as Couchbase's tools print it."""
    prepare, collection, rest = collection_of(key)
    if collection == SYSTEM_EVENTS:
        kind, rest = leb128(rest)
        subject, rest = leb128(rest)
        name = {0: "collection", 1: "scope", 2: "modify"}.get(kind, str(kind))
        prefix = f"system-event-key:{name}:0x{subject:x}"
    else:
        prefix = f"collection:0x{collection:x}" + (":default" if collection == 0 else "")
    return f"({'prepare:' if prepare else ''}{prefix}){rest.decode('utf-8', 'replace')}"


def datatype_text(datatype):
    """Names of the bits, in the order in which Couchbase's tools print them."""
    return [name for bit, name in DATATYPES if datatype & bit] or ["raw"]


def kv_meta(document):
    """The fields of rev_meta, or `None` if its length is not one that Couchbase writes today."""
    if len(document.rev_meta) not in (18, 19, 25):
        return None
    fields = Fields(document.rev_meta, 0, "rev_meta")
    meta = {"cas": fields.number(8), "expiry": fields.number(4), "flags": fields.number(4)}
    code = fields.number(1)
    meta["deleted_by"] = ("TTL" if code & 0x80 else "explicit") if document.deleted else None
    meta["datatype"] = fields.number(1)
    if len(document.rev_meta) == 25:
        operation, details = fields.number(1), fields.number(6)
        meta["operation"] = OPERATIONS.get(operation, str(operation))
        if operation == 0:
            meta["level"] = LEVELS.get(details >> 1, str(details >> 1))
            meta["is_delete"] = bool(details & 1)
        else:
            meta["prepare_seqno"] = details
    return meta


def as_json(document, body):
    """One line's worth: bytes in hexadecimal, text forms beside them for people."""
    line = {
        "key": document.key.hex(),
        "seqno": document.seqno,
        "rev": document.rev,
        "deleted": document.deleted,
        "content_meta": document.content_meta,
        "rev_meta": document.rev_meta.hex(),
        "body_offset": document.body_offset,
        "body_size": document.body_size,
        "body": None if body is None else body.hex(),
        "kv": kv_meta(document),
    }
    try:
        line["name"] = key_text(document.key)
    except ValueError:
        line["name"] = None
    return line
