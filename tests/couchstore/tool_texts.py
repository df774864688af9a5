"""Renders what the reader found the way the original's own tools print it, so that the two can be
compared byte by byte."""

import json

import reader
from documents import datatype_text, key_text, kv_meta
from raw_snappy import decompress


def human(size):
    """A size as the original's tools print it."""
    return f"{size} bytes" if size < 1024 else f"{size / 1024:.1f} kB"


class Texts:
    """One file, printed in several ways."""

    def __init__(self, name, file):
        self.name, self.file = name, file
        self.header = file.newest_header()

    def by_seqno(self):
        out = [f'Dumping "{self.name}":\n'.encode()]
        count = 0
        for document, body in reader.with_bodies(self.file, self.header, "seqno"):
            out.append(self._document(document, body))
            count += 1
        return b"".join(out) + f"\nTotal docs: {count}\n".encode()

    def _document(self, document, body):
        kv = kv_meta(document)
        when = f"delete_time: {kv['expiry']}" if document.deleted else f"expiry: {kv['expiry']}"
        meta = f"{document.content_meta:#x}" if document.content_meta else "00"
        names = ",".join(datatype_text(kv["datatype"]))
        lines = [
            f"Doc seq: {document.seqno}",
            f"     id: {key_text(document.key)}",
            f"     rev: {document.rev}",
            f"     content_meta: {meta}",
            f"     size (on disk): {document.body_size}",
            f"     file offset: {document.body_offset}",
            f"     cas: {kv['cas']}, {when}, flags: {kv['flags']}, "
            f"datatype: 0x{kv['datatype']:02x} ({names})" + self._sync_write(kv),
        ]
        if document.deleted:
            lines.append(f"     doc deleted ({kv['deleted_by']})")
        lines.append(f"     size: {len(body)}")
        text = "\n".join(lines) + "\n"
        return text.encode() + self._data(document, kv["datatype"], body)

    @staticmethod
    def _sync_write(kv):
        if "operation" not in kv:
            return ""
        if kv["operation"] == "pending":
            detail = f"level: {kv['level']}, isDelete:{str(kv['is_delete']).lower()}"
        else:
            detail = f"prepareSeqno: {kv['prepare_seqno']}"
        return f", sync_write: {kv['operation']} [{detail}]"

    @staticmethod
    def _data(document, datatype, body):
        if not body:
            return b"     data: null\n"
        out = b""
        if datatype & 2:
            body = decompress(body)
        if datatype & 4:
            attributes, body = split_attributes(body)
            out = b"     xattrs: " + json.dumps(attributes, separators=(",", ":")).encode() + b"\n"
        mark = b"(snappy) " if document.content_meta & 0x80 else b""
        # The tool prints a C string.
        return out + b"     data: " + mark + body.split(b"\0")[0] + b"\n"

    def id_tree(self):
        out = [f'Dumping "{self.name}":\n']
        for line in reader.tree_lines(self.file, self.header):
            indent = "  " * line["depth"]
            if "node" in line:
                groups = [line["reduce"][at : at + 8] for at in range(0, 32, 8)]
                out.append(f"{indent}+ ({line['subtree_size']}) {{{' '.join(groups)} }}\n")
            else:
                mark = "x" if line["deleted"] else "*"
                sizes = f"({line['body_size']},{len(line['rev_meta']) // 2})"
                out.append(f"{indent}{mark} {sizes}  id:{line['name']}\n")
        count = sum("name" in line for line in reader.tree_lines(self.file, self.header))
        return ("".join(out) + f"\nTotal docs: {count}\n").encode()

    def info(self):
        """The headers, newest first."""
        lines = [f"DB Info ({self.name}) - total disk size: {human(len(self.file.data))}"]
        lines.append(f"   crc: {'CRC-32' if self.header.version == 11 else 'CRC-32C'}")
        metadata = self.file.metadata()
        if self.header.version == 14:
            key = metadata["key_id"] if metadata else "unencrypted"
            lines.append(f"   Encryption key: {key}")
        for header in self.file.chain(self.header):
            lines += ["", *self._header(reader.header_line(header))]
        return "\n".join(lines).encode()

    @staticmethod
    def _header(line):
        trees = {name: line["tree_sizes"].get(name, 0) for name in ("id", "seqno", "local")}
        space = sum(trees.values())
        out = [
            f"Header at file offset {line['header']}",
            f"   file format version: {line['version']}",
            f"   update_seq: {line['update_seq']}",
            f"   purge_seq: {line['purge_seq']}",
        ]
        if line["version"] >= 13:
            out.append(f"   timestamp: {line['timestamp']}")
        return out + [
            f"   doc count: {line['live']}",
            f"   deleted doc count: {line['deleted']}",
            f"   data size: {human(line['bodies_size'] + space)}",
            f"   B-tree size:       {human(space)}",
            f"   └── by-id tree:    {human(trees['id'])}",
            f"   └── by-seqno tree: {human(trees['seqno'])}",
            f"   └── local size:    {human(trees['local'])}",
        ]


def split_attributes(body):
    """The extended attributes in front of a body, and what follows them."""
    length = int.from_bytes(body[:4], "big")
    area, rest = body[4 : 4 + length], body[4 + length :]
    attributes = {}
    while area:
        size = int.from_bytes(area[:4], "big")
        name, value, _ = area[4 : 4 + size].split(b"\0")
        attributes[name.decode()] = json.loads(value)
        area = area[4 + size :]
    return attributes, rest
