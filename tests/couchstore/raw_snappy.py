"""Raw Snappy (no framing), the decompressing half, in plain Python.

Nothing is allocated on the word of the input: the result grows as elements are decoded, and the
length that the input claims is checked at each step.
"""


class SnappyError(Exception):
    """The bytes are not a raw Snappy block."""


def _varint(data):
    value = 0
    for at in range(min(len(data), 5)):
        value |= (data[at] & 0x7F) << (7 * at)
        if data[at] < 0x80:
            return value, at + 1
    raise SnappyError("expected a length of at most 5 bytes in front")


def _literal(data, at):
    """The start and the length of the literal whose tag stands at `at`."""
    length = data[at] >> 2
    at += 1
    if length >= 60:
        extra = length - 59
        if at + extra > len(data):
            raise SnappyError("expected the length of a literal, the block ends")
        length = int.from_bytes(data[at : at + extra], "little")
        at += extra
    length += 1
    if at + length > len(data):
        raise SnappyError("expected the bytes of a literal, the block ends")
    return at, length


def _copy(data, at):
    """How far back, how long, and where the next element starts."""
    tag = data[at]
    extra = {1: 1, 2: 2, 3: 4}[tag & 3]
    if at + 1 + extra > len(data):
        raise SnappyError("expected the offset of a copy, the block ends")
    offset = int.from_bytes(data[at + 1 : at + 1 + extra], "little")
    if tag & 3 == 1:
        return offset | (tag >> 5) << 8, (tag >> 2 & 7) + 4, at + 2
    return offset, (tag >> 2) + 1, at + 1 + extra


def decompress(data):
    """The plain text of the block `data`; SnappyError if it is not one."""
    wanted, at = _varint(data)
    out = bytearray()
    while at < len(data):
        if data[at] & 3 == 0:
            at, length = _literal(data, at)
            out += data[at : at + length]
            at += length
        else:
            offset, length, at = _copy(data, at)
            start = len(out) - offset
            if offset == 0 or start < 0:
                raise SnappyError(f"expected a copy from within the {len(out)} bytes so far")
            # A copy may reach into what it is itself writing: then the pattern repeats.
            pattern = out[start : start + length]
            while len(pattern) < length:
                pattern += pattern[: length - len(pattern)]
            out += pattern
        if len(out) > wanted:
            raise SnappyError(f"expected {wanted} bytes, there are more")
    if len(out) != wanted:
        raise SnappyError(f"expected {wanted} bytes, found {len(out)}")
    return bytes(out)
