"""Holds the reader against files that the original library made and what the original's tools print
of them, and against damaged ones. Run `python3 -m unittest` in this directory."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import reader  # noqa: E402
from checksums import crc32c  # noqa: E402
from couchfile import BLOCK, CouchFile, Damage, UnknownVersion  # noqa: E402
from documents import datatype_text, key_text, kv_meta, leb128  # noqa: E402
from raw_snappy import SnappyError, decompress  # noqa: E402
from tool_texts import Texts, split_attributes  # noqa: E402
from verify import check_file, check_header, documents  # noqa: E402

GOLDEN = HERE.parent.parent / "crates" / "kedge-couchstore" / "tests" / "golden"
PLAIN = [
    "rich.couch.1",
    "s10_json.couch.1",
    "s1k_10commits.couch.1",
    "s1k_10commits_compacted.couch.2",
    "s200_v11_legacycrc.couch.1",
    "s200_v12.couch.1",
    "s200_v13.couch.1",
]
ENCRYPTED = "s200_encrypted_testkey.couch.1"
# Of each file with 1,000 documents one of the two dumps of all documents is kept.
BY_SEQNO = [name for name in PLAIN if name != "s1k_10commits.couch.1"]
BY_ID = [name for name in PLAIN if name != "s1k_10commits_compacted.couch.2"]


def sample(name):
    return CouchFile.open(GOLDEN / name)


def dump(name, kind):
    return (GOLDEN / "dumps" / f"{name}.{kind}").read_bytes()


def texts(name):
    return Texts(name, sample(name))


class Samples(unittest.TestCase):
    """Files of the original library."""

    def each(self, names=PLAIN):
        for name in names:
            with self.subTest(name):
                yield name

    def test_every_commit_of_every_sample_is_sound(self):
        for name in self.each():
            found = check_file(sample(name), every_header=True)
            self.assertEqual(found["damaged_headers"], [])
            self.assertEqual(found["headers"], found["chain"])

    def test_documents_by_seqno_are_the_dump_byte_by_byte(self):
        for name in self.each(BY_SEQNO):
            self.assertEqual(texts(name).by_seqno(), dump(name, "byseq.txt"))

    def test_the_id_tree_is_the_dump_byte_by_byte(self):
        for name in self.each():
            self.assertEqual(texts(name).id_tree(), dump(name, "idtree.txt"))

    def test_the_headers_are_the_dump_but_for_the_size_of_the_file(self):
        # The first line holds what the file took on the disk that the dump was made on.
        for name in self.each([*PLAIN, ENCRYPTED]):
            found = texts(name).info().split(b"\n")
            self.assertEqual(found[1:], dump(name, "info.txt").rstrip(b"\n").split(b"\n")[1:])

    def test_documents_by_id_are_the_dump_field_by_field(self):
        for name in self.each(BY_ID):
            file = sample(name)
            found = list(reader.with_bodies(file, file.newest_header(), "id"))
            expected = [json.loads(line) for line in dump(name, "byid.jsonl").splitlines() if line]
            self.assertEqual(len(found), len(expected))
            for (document, body), line in zip(found, expected):
                self.check_line(document, body, line)

    def check_line(self, document, body, line):
        kv = kv_meta(document)
        self.assertEqual(key_text(document.key), line["id"])
        self.assertEqual((document.seqno, document.rev), (line["seq"], line["rev"]))
        self.assertEqual(document.content_meta, int(line["content_meta"], 16))
        place = (document.body_offset, document.body_size, len(body))
        self.assertEqual(place, (line["file_offset"], line["physical_size"], line["size"]))
        self.assertEqual(kv["cas"], int(line["cas"]))
        self.assertEqual((kv["flags"], kv["datatype"]), (line["flags"], line["datatype"]))
        self.assertEqual(datatype_text(kv["datatype"]), line["datatype_as_text"])
        self.assertEqual(kv["expiry"], line["delete_time" if document.deleted else "expiry"])
        self.assertEqual(kv["deleted_by"], line.get("deleted"))
        self.assertEqual(kv.get("operation"), line.get("sync_write"))
        self.assertEqual(kv.get("level"), line.get("level"))
        self.assertEqual(kv.get("is_delete"), line.get("isDelete"))
        self.assertEqual(kv.get("prepare_seqno"), line.get("prepareSeqno"))
        self.check_body(kv["datatype"], body, line)

    def check_body(self, datatype, body, line):
        if datatype & 2:
            body = decompress(body)
        if datatype & 4:
            attributes, body = split_attributes(body)
            self.assertEqual(attributes, json.loads(line["xattr"]))
        if datatype & 1:
            self.assertEqual(json.loads(body), line["body"])
        else:
            # What is not UTF-8 is in the dump with a replacement character for each bad part.
            self.assertEqual(body.decode("utf-8", "replace"), line["body"])

    def test_local_documents_are_the_dump(self):
        for name in self.each():
            file = sample(name)
            found = list(reader.local_lines(file, file.newest_header()))
            lines = dump(name, "local.txt").decode().split("\n")
            self.assertEqual(lines[-3:], ["", f"Total docs: {len(found)}", ""])
            self.assertEqual(len(lines), 1 + 3 * len(found) + 3)
            for at, line in enumerate(found):
                key, value, size = lines[1 + 3 * at : 4 + 3 * at]
                self.assertEqual(key, f"Key: {line['name']}")
                self.assertEqual(size, f"Value size: {len(line['value']) // 2}")
                self.check_local(line, value.removeprefix("Value: "))

    def check_local(self, line, printed):
        if line["name"] == "_local/vbstate":
            self.assertEqual(line["text"], printed)
        elif line["name"].startswith("|0x"):
            rest, numbers = bytes.fromhex(line["value"]), []
            while rest:
                value, rest = leb128(rest)
                numbers.append(value)
            self.assertEqual(numbers, list(json.loads(printed).values()))
        else:
            # A flatbuffer, printed with its schema; only the names in it are legible without.
            for entry in json.loads(printed).get("entries", []):
                self.assertIn(entry.get("name", "").encode().hex(), line["value"])

    def test_older_commits_can_be_read(self):
        file = sample("s1k_10commits.couch.1")
        counts = [check_header(file, header)["live"] for header in file.chain(file.newest_header())]
        self.assertEqual(counts, [1000, 900, 800, 700, 600, 500, 400, 300, 200, 100, 0])


class Torn(unittest.TestCase):
    """What the original library does with damaged files, from the log of its runs."""

    # Bytes of the last header and behind that are left, which byte of it is changed to what, what a normal open says
    # (None: refused), what a salvaging one says. The letters are those of the log.
    LAST_HEADER = 266_240
    RESULTS = {
        "T1": (20, None, None, 900),
        "T2": (105, (0, 0), 900, 900),
        "T4": (105, (30, 1), None, 900),
        "T5": (0, None, 900, 900),
        "T6": (1, None, 900, 900),
        "T6b": (2, None, None, 900),
        "T10": (105, (0, 7), None, 900),
    }

    def torn(self, kept, change):
        data = bytearray(sample("s1k_10commits.couch.1").data[: self.LAST_HEADER + kept])
        if change:
            at, byte = change
            self.assertNotEqual(data[self.LAST_HEADER + at], byte)
            data[self.LAST_HEADER + at] = byte
        return CouchFile(bytes(data))

    def opened(self, file, recover):
        try:
            header = file.newest_header(recover=recover)
        except Damage:
            return None
        return check_header(file, header)["live"]

    def test_opens_end_as_those_of_the_original(self):
        for name, (kept, change, normal, recovered) in self.RESULTS.items():
            with self.subTest(name):
                file = self.torn(kept, change)
                self.assertEqual(self.opened(file, False), normal)
                self.assertEqual(self.opened(file, True), recovered)

    def test_data_behind_the_last_header_is_nothing(self):
        data = sample("s1k_10commits.couch.1").data
        tail = bytearray(b"\x5a" * 10_000)
        for at in range(len(data), len(data) + len(tail)):
            if at % BLOCK == 0:
                tail[at - len(data)] = 0
        self.assertEqual(self.opened(CouchFile(data + bytes(tail)), False), 1000)

    def test_files_without_a_header(self):
        for data in (b"", bytes(8192)):
            self.assertIsNone(CouchFile(data).newest_header())
            with self.assertRaises(Damage):
                check_file(CouchFile(data))


class Hostile(unittest.TestCase):
    """Damage of single bytes is found, and nothing but `Damage` comes of it."""

    def test_a_flipped_bit_that_the_last_commit_reaches_is_found(self):
        # A compacted file has nothing that is not reached but the gap before its header.
        data = sample("s1k_10commits_compacted.couch.2").data
        whole = check_file(CouchFile(data))
        gap = range(len(data[: whole["header"]].rstrip(b"\0")), whole["header"])
        for at in range(0, len(data), 1999):
            damaged = bytearray(data)
            damaged[at] ^= 1 << (at % 8)
            if at in gap:
                continue
            with self.subTest(at), self.assertRaises(Damage):
                check_file(CouchFile(bytes(damaged)))

    def test_any_damage_is_an_error_or_harmless(self):
        data = sample("s10_json.couch.1").data
        for at in range(len(data)):
            damaged = bytearray(data)
            damaged[at] ^= (0x01, 0x80, 0xFF)[at % 3]
            self.check(bytes(damaged))
            if at % 7 == 0:
                self.check(data[:at])

    def check(self, data):
        try:
            found = check_file(CouchFile(data))
        except Damage:
            return
        self.assertIn(found["live"], (0, 10))

    def test_an_unknown_version_is_not_salvaged(self):
        data = bytearray(sample("s10_json.couch.1").data)
        data[BLOCK + 9] = 15
        with self.assertRaises(UnknownVersion):
            CouchFile(bytes(data)).newest_header(recover=True)


class Parts(unittest.TestCase):
    """Checksums, Snappy and numbers by themselves."""

    def test_crc32c_of_the_published_vectors(self):
        self.assertEqual(crc32c(b""), 0)
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)
        self.assertEqual(crc32c(b"\xff" * 32), 0x62A8AB43)
        self.assertEqual(crc32c(bytes(range(32))), 0x46DD794E)

    def test_snappy_elements(self):
        for block, plain in (
            ("00", b""),
            ("0308616263", b"abc"),
            # A copy that overlaps itself, with an offset of 1, 2 and 4 bytes.
            ("0a08616263" + "0d03", b"abcabcabca"),
            ("0a08616263" + "1a0300", b"abcabcabca"),
            ("0a08616263" + "1b03000000", b"abcabcabca"),
            # A literal whose length takes a byte of its own.
            ("46f045" + "78" * 70, b"x" * 70),
        ):
            self.assertEqual(decompress(bytes.fromhex(block)), plain, block)

    def test_what_is_not_snappy_is_refused(self):
        for block in ("", "80", "ffffffffff01", "03086162", "0208616263", "0408616263",
                      "0a086162630d04", "0a086162630d00", "0a086162630d", "01f0", "01f4ff"):
            with self.subTest(block), self.assertRaises(SnappyError):
                decompress(bytes.fromhex(block))

    def test_keys_as_the_tools_print_them(self):
        for key, text in (
            ("006b", "(collection:0x0:default)k"),
            ("b4246b", "(collection:0x1234)k"),
            ("02096b", "(prepare:collection:0x9)k"),
            ("0101085f73636f7065", "(system-event-key:scope:0x8)_scope"),
        ):
            self.assertEqual(key_text(bytes.fromhex(key)), text)


class CommandLine(unittest.TestCase):
    """The reader as other tests use it."""

    def run_reader(self, *arguments):
        command = [sys.executable, str(HERE / "reader.py"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def test_check_says_what_is_in_a_sound_file(self):
        code, (line,) = self.run_reader("--check", GOLDEN / "rich.couch.1", "--every-header")
        self.assertEqual(code, 0)
        self.assertEqual((line["live"], line["deleted"], line["locals"]), (30, 6, 6))
        self.assertEqual((line["ok"], line["version"], line["headers"]), (True, 14, 8))

    def test_check_fails_where_the_damage_is(self):
        data = bytearray(sample("s10_json.couch.1").data)
        data[0x40] ^= 1
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            code, (line,) = self.run_reader("--check", file.name)
        self.assertEqual((code, line["offset"]), (1, 0x30))
        self.assertIn("checksum", line["error"])

    def test_lines_of_documents_and_locals(self):
        path = GOLDEN / "s10_json.couch.1"
        code, lines = self.run_reader("--by-id", path)
        self.assertEqual((code, len(lines)), (0, 10))
        self.assertEqual(lines[0]["key"], b"\0key-000000".hex())
        self.assertEqual(json.loads(bytes.fromhex(lines[0]["body"]))["i"], 0)
        code, by_seqno = self.run_reader("--by-seqno", path, "--no-bodies")
        self.assertEqual((code, [line["seqno"] for line in by_seqno]), (0, list(range(1, 11))))
        self.assertEqual({line["body"] for line in by_seqno}, {None})
        code, local = self.run_reader("--locals", path)
        self.assertEqual((code, local[0]["name"]), (0, "_local/vbstate"))
        code, empty = self.run_reader("--by-id", path, "--header", 0)
        self.assertEqual((code, empty), (0, []))

    def test_what_cannot_be_read_is_said(self):
        code, lines = self.run_reader("--by-id", GOLDEN / ENCRYPTED)
        self.assertEqual(code, 1)
        self.assertIn("encrypted", lines[-1]["error"])
        code, lines = self.run_reader("--by-id", GOLDEN / "not-there")
        self.assertEqual((code, len(lines)), (1, 1))


if __name__ == "__main__":
    unittest.main()
