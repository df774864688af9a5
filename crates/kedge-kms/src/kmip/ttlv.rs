//! The encoding of KMIP: tag, type, length and value (KMIP 1.4, section 9.1).

use zeroize::Zeroizing;

/// The bytes of tag, type and length.
const HEAD_BYTES: usize = 8;
/// Values are padded to a multiple of this.
const ALIGNMENT: usize = 8;
/// Largest depth of structures that are searched.
const DEPTH_MAX: usize = 16;

const STRUCTURE: u8 = 1;
const INTEGER: u8 = 2;
const ENUMERATION: u8 = 5;
const BOOLEAN: u8 = 6;
const TEXT: u8 = 7;
const BYTES: u8 = 8;

/// A writer of items. Its memory is overwritten when it is dropped.
pub(super) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    /// Creates a writer of messages that are not longer than this: no copies of secrets are left.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(bytes_max)))
    }

    pub(super) fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        self.0
    }

    /// Writes a structure, whose items `content` writes.
    pub(super) fn structure(&mut self, tag: u32, content: impl FnOnce(&mut Self)) {
        self.head(tag, STRUCTURE, 0);
        let start = self.0.len();
        content(self);
        let bytes = (self.0.len() - start) as u32;
        self.0[start - 4..start].copy_from_slice(&bytes.to_be_bytes());
    }

    pub(super) fn integer(&mut self, tag: u32, value: i32) {
        self.item(tag, INTEGER, &value.to_be_bytes());
    }

    pub(super) fn enumeration(&mut self, tag: u32, value: u32) {
        self.item(tag, ENUMERATION, &value.to_be_bytes());
    }

    pub(super) fn boolean(&mut self, tag: u32, value: bool) {
        self.item(tag, BOOLEAN, &u64::from(value).to_be_bytes());
    }

    pub(super) fn text(&mut self, tag: u32, value: &str) {
        self.item(tag, TEXT, value.as_bytes());
    }

    pub(super) fn bytes(&mut self, tag: u32, value: &[u8]) {
        self.item(tag, BYTES, value);
    }

    fn item(&mut self, tag: u32, kind: u8, value: &[u8]) {
        self.head(tag, kind, value.len() as u32);
        self.0.extend_from_slice(value);
        let padded = self.0.len().next_multiple_of(ALIGNMENT);
        self.0.resize(padded, 0);
    }

    fn head(&mut self, tag: u32, kind: u8, bytes: u32) {
        self.0.extend_from_slice(&tag.to_be_bytes()[1..]);
        self.0.push(kind);
        self.0.extend_from_slice(&bytes.to_be_bytes());
    }
}

/// Returns the length of the message that begins like this, if its head is there.
pub(super) fn message_bytes(start: &[u8]) -> Option<usize> {
    let head = start.first_chunk::<HEAD_BYTES>()?;
    let bytes = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    Some(HEAD_BYTES + bytes as usize)
}

/// An item of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'m> {
    tag: u32,
    kind: u8,
    value: &'m [u8],
}

impl<'m> Item<'m> {
    /// Reads the first item. Returns it and what follows.
    pub(super) fn read(bytes: &'m [u8]) -> Option<(Self, &'m [u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let tag = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let padded = length.checked_next_multiple_of(ALIGNMENT)?;
        let (value, rest) = rest.split_at_checked(padded)?;
        let item = Self {
            tag,
            kind: head[3],
            value: &value[..length],
        };
        Some((item, rest))
    }

    /// Returns the first item with a tag in this structure, at any depth.
    pub(super) fn find(self, tag: u32) -> Option<Self> {
        self.find_below(tag, DEPTH_MAX)
    }

    fn find_below(self, tag: u32, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        if self.kind != STRUCTURE {
            return None;
        }
        let mut rest = self.value;
        while let Some((item, after)) = Self::read(rest) {
            if item.tag == tag {
                return Some(item);
            }
            if let Some(found) = item.find_below(tag, depth) {
                return Some(found);
            }
            rest = after;
        }
        None
    }

    pub(super) fn tag(self) -> u32 {
        self.tag
    }

    pub(super) fn as_number(self) -> Option<u32> {
        let is_number = self.kind == INTEGER || self.kind == ENUMERATION;
        let bytes = self.value.try_into().ok().filter(|_| is_number)?;
        Some(u32::from_be_bytes(bytes))
    }

    pub(super) fn as_text(self) -> Option<&'m str> {
        let text = std::str::from_utf8(self.value).ok();
        text.filter(|_| self.kind == TEXT)
    }

    pub(super) fn as_bytes(self) -> Option<&'m [u8]> {
        (self.kind == BYTES).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of KMIP 1.4, section 9.1.2.
    #[test]
    fn items_are_written_as_in_the_specification() {
        let hex = |write: fn(&mut Writer)| {
            let mut writer = Writer::new(64);
            write(&mut writer);
            let bytes = writer.into_bytes();
            bytes
                .iter()
                .map(|byte| format!("{byte:02X}"))
                .collect::<String>()
        };
        assert_eq!(
            hex(|it| it.integer(0x420020, 8)),
            "42002002000000040000000800000000"
        );
        assert_eq!(
            hex(|it| it.enumeration(0x420020, 255)),
            "4200200500000004000000FF00000000"
        );
        assert_eq!(
            hex(|it| it.boolean(0x420020, true)),
            "42002006000000080000000000000001"
        );
        assert_eq!(
            hex(|it| it.text(0x420020, "Hello World")),
            "420020070000000B48656C6C6F20576F726C640000000000"
        );
        assert_eq!(
            hex(|it| it.bytes(0x420020, &[1, 2, 3])),
            "42002008000000030102030000000000"
        );
        assert_eq!(
            hex(|it| it.structure(0x420020, |it| {
                it.enumeration(0x420004, 254);
                it.integer(0x420005, 255);
            })),
            "42002001000000204200040500000004000000FE000000004200050200000004000000FF00000000"
        );
    }

    #[test]
    fn items_are_found_at_any_depth_and_hostile_bytes_are_none() {
        let mut writer = Writer::new(256);
        writer.structure(0x42_0001, |it| {
            it.structure(0x42_0002, |it| it.text(0x42_0003, "text"));
            it.bytes(0x42_0004, b"bytes");
            it.integer(0x42_0005, 7);
        });
        let bytes = writer.into_bytes();
        assert_eq!(message_bytes(&bytes), Some(bytes.len()));
        assert_eq!(message_bytes(&bytes[..7]), None);
        let (item, rest) = Item::read(&bytes).expect("an item");
        assert!(rest.is_empty());
        assert_eq!(item.find(0x42_0003).and_then(Item::as_text), Some("text"));
        assert_eq!(
            item.find(0x42_0004).and_then(Item::as_bytes),
            Some(&b"bytes"[..])
        );
        assert_eq!(item.find(0x42_0005).and_then(Item::as_number), Some(7));
        assert_eq!(item.find(0x42_0005).and_then(Item::as_text), None);
        assert_eq!(item.find(0x42_0006), None);
        for cut in 0..bytes.len() {
            assert_eq!(Item::read(&bytes[..cut]), None, "{cut}");
        }
        let mut deep = Vec::new();
        for _ in 0..1_000 {
            let [.., high, low] = deep.len().to_be_bytes();
            drop(deep.splice(..0, [0x42, 0, 1, STRUCTURE, 0, 0, high, low]));
        }
        let (item, _) = Item::read(&deep).expect("an item");
        assert_eq!(item.find(0x42_0009), None);
        let huge = [0x42, 0, 1, 8, 0xff, 0xff, 0xff, 0xff, 0];
        assert_eq!(Item::read(&huge), None);
    }
}
