"""The two checksums of couchstore files: CRC-32C (versions 12 and up) and CRC-32 (version 11)."""

import zlib


def _table(polynomial):
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        table.append(crc)
    return table


_CASTAGNOLI = _table(0x82F63B78)


def crc32c(data):
    """CRC-32C: reflected, started with and finished by all ones."""
    crc = 0xFFFFFFFF
    table = _CASTAGNOLI
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def checksum(version, data):
    """The checksum of `data` in a file of this version."""
    return zlib.crc32(data) if version == 11 else crc32c(data)
