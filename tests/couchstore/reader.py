#!/usr/bin/env python3
"""An independent reader of couchstore files, for Kedge's tests.

It is written from the format document alone and shares nothing with the Rust code, so that what
one of them misunderstands the other one catches. It needs Python 3.10 and its standard library;
checksums and Snappy are here in plain Python. Files are read into memory whole.

    reader.py --check FILE [--every-header]   verify; one line of JSON about it
    reader.py --by-id FILE                    documents in the order of their keys, one a line
    reader.py --by-seqno FILE                 documents in the order of their seqnos
    reader.py --locals FILE                   local documents
    reader.py --info FILE                     headers, newest first, along their chain
    reader.py --tree FILE                     the nodes and entries of the by-id tree

    --header OFFSET    the commit with its header there instead of the newest
    --recover          go on to an older header where the newest is damaged
    --no-bodies        documents without their bodies

Exit code 0 if all of it is sound. 1 if not: the last line then is `{"error": .., "offset": ..}`.
Whatever is printed is verified on the way, except that only --check compares the two document
trees, reads all bodies and looks for overlaps. Versions 11 to 14 are read. Of an encrypted file
only the headers (--info): it has no AES.

Keys, bodies and metadata are printed in hexadecimal; `name` and `kv` say the same for people. A
body is printed as it was given to the store, that is without the store's own compression; `null`
means that there is none. The files of this reader: `reader` (this, the command line), `verify`
(what must hold), `documents` (leaf entries and kv metadata), `couchfile` (blocks, chunks, headers,
nodes), `raw_snappy`, `checksums`. Its tests, `test_reader`, hold it against files of the original
library and what the original's own tools print of them: `python3 -m unittest` here.
"""

import argparse
import json
import os
import sys

from couchfile import CouchFile, Damage, Encrypted
from documents import as_json, body_chunk, from_id_entry, plain_body
from verify import Tree, check_file, check_header, decode_reduce, documents, locals_of


def with_bodies(file, header, order):
    """The documents of one tree, each with its plain body."""
    for document in documents(file, header, order):
        stored, _ = body_chunk(file, header.version, document)
        yield document, plain_body(document, stored)


def local_lines(file, header):
    """Lines of the local documents; `text` is there if the value is UTF-8."""
    for name, value in locals_of(file, header):
        line = {"name": name.decode("utf-8", "replace"), "value": value.hex()}
        try:
            line["text"] = value.decode()
        except UnicodeDecodeError:
            line["text"] = None
        yield line


def header_line(header):
    """What one header says, with what its roots' reduces say."""
    line = {
        "header": header.offset,
        "version": header.version,
        "update_seq": header.update_seq,
        "purge_seq": header.purge_seq,
        "timestamp": header.timestamp,
        "previous": header.previous,
        "encrypted": header.encrypted,
        "live": 0,
        "deleted": 0,
        "bodies_size": 0,
        "tree_sizes": {name: root.subtree_size for name, root in header.roots.items()},
    }
    if "id" in header.roots:
        reduce = decode_reduce("id", header.roots["id"].reduce)
        line["live"], line["deleted"], line["bodies_size"] = reduce
    return line


def tree_lines(file, header):
    """The by-id tree: each node, and below a leaf its documents."""
    nodes = []
    for _ in Tree(file, header, "id", nodes=nodes).walk():
        pass
    for depth, pointer, node in nodes:
        reduce = pointer.reduce.hex()
        yield {"depth": depth, "node": node.offset, "subtree_size": pointer.subtree_size, "reduce": reduce}
        for key, value in node.entries if node.is_leaf else []:
            yield {"depth": depth + 1, **as_json(from_id_entry(node.offset, key, value), None)}


def _arguments(argv):
    parser = argparse.ArgumentParser(description="Reads and verifies couchstore files.")
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("check", "by-id", "by-seqno", "locals", "info", "tree"):
        what.add_argument(f"--{name}", metavar="FILE")
    parser.add_argument("--header", type=int, metavar="OFFSET")
    parser.add_argument("--recover", action="store_true")
    parser.add_argument("--every-header", action="store_true")
    parser.add_argument("--no-bodies", action="store_true")
    return parser.parse_args(argv)


def _header(file, options):
    if options.header is not None:
        return file.header_at(options.header)
    header = file.newest_header(recover=options.recover)
    if header is None:
        raise Damage(0, "expected at least one header, found none")
    return header


def lines(options):
    """What the command line asks for, line by line."""
    if options.check:
        file = CouchFile.open(options.check)
        if options.header is None and not options.recover:
            yield {"ok": True, **check_file(file, options.every_header)}
        else:
            yield {"ok": True, **check_header(file, _header(file, options))}
        return
    path = options.by_id or options.by_seqno or options.locals or options.info or options.tree
    file = CouchFile.open(path)
    header = _header(file, options)
    if options.by_id or options.by_seqno:
        order = "id" if options.by_id else "seqno"
        if options.no_bodies:
            yield from (as_json(document, None) for document in documents(file, header, order))
        else:
            yield from (as_json(*pair) for pair in with_bodies(file, header, order))
    elif options.locals:
        yield from local_lines(file, header)
    elif options.tree:
        yield from tree_lines(file, header)
    else:
        metadata = file.metadata()
        if metadata is not None:
            yield {"encryption": metadata}
        for each in file.chain(header):
            yield header_line(each)


def main(argv):
    try:
        for line in lines(_arguments(argv)):
            print(json.dumps(line, sort_keys=True))
    except Damage as damage:
        print(json.dumps({"error": damage.what, "offset": damage.offset}))
        return 1
    except (Encrypted, OSError) as error:
        print(json.dumps({"error": str(error), "offset": None}))
        return 1
    except BrokenPipeError:
        # Whoever read the lines has seen enough; nothing may be flushed into the pipe on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
