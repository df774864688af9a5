//! Decoding of tables. Every offset is validated before it is followed, and nothing is allocated.

use crate::kv::KvError;

/// A table of a flatbuffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlatTable<'a> {
    buffer: &'a [u8],
    /// Start of the table.
    at: usize,
    /// The encoded offsets of the fields.
    fields: &'a [u8],
    /// Length of the table, in bytes.
    len: usize,
}

impl<'a> FlatTable<'a> {
    /// Returns the root table of a buffer.
    pub(crate) fn root(buffer: &'a [u8]) -> Result<Self, KvError> {
        let at = follow(buffer, 0, "the offset of the root table")?;
        Self::at(buffer, at)
    }

    fn at(buffer: &'a [u8], at: usize) -> Result<Self, KvError> {
        let back = i32::from_le_bytes(take(buffer, at, "a table")?);
        let vtable = i64::try_from(at)
            .ok()
            .and_then(|at| at.checked_sub(i64::from(back)))
            .and_then(|vtable| usize::try_from(vtable).ok())
            .ok_or_else(|| damage(at, "a distance to a table's vtable"))?;
        let vtable_len = usize::from(u16_at(buffer, vtable, "a vtable")?);
        let whole = vtable
            .checked_add(vtable_len)
            .and_then(|end| buffer.get(vtable..end));
        // The length of the vtable and of the table come first.
        let fields = whole.and_then(|whole| whole.get(4..));
        let fields = fields.ok_or_else(|| damage(vtable, "the length of a vtable"))?;
        let len = usize::from(u16_at(buffer, vtable + 2, "a vtable")?);
        if len < 4 || buffer.len() - at < len {
            return Err(damage(vtable + 2, "the length of a table"));
        }
        Ok(Self {
            buffer,
            at,
            fields,
            len,
        })
    }

    /// Returns the position of field `index` in the buffer, if it is present. `bytes` is its size.
    fn field(&self, index: usize, bytes: usize) -> Result<Option<usize>, KvError> {
        let Some(offset) = self.fields.get(2 * index..2 * index + 2) else {
            return Ok(None);
        };
        let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
        if offset == 0 {
            return Ok(None);
        }
        if offset < 4 || offset + bytes > self.len {
            return Err(damage(self.at, "a field within its table"));
        }
        Ok(Some(self.at + offset))
    }

    /// Returns a number of 8 bytes.
    pub(crate) fn u64(&self, index: usize) -> Result<u64, KvError> {
        match self.field(index, 8)? {
            Some(at) => Ok(u64::from_le_bytes(take(self.buffer, at, "a number")?)),
            None => Ok(0),
        }
    }

    /// Returns a number of 4 bytes.
    pub(crate) fn u32(&self, index: usize) -> Result<u32, KvError> {
        match self.field(index, 4)? {
            Some(at) => Ok(u32::from_le_bytes(take(self.buffer, at, "a number")?)),
            None => Ok(0),
        }
    }

    /// Returns a Boolean.
    pub(crate) fn bool(&self, index: usize) -> Result<bool, KvError> {
        match self.field(index, 1)? {
            Some(at) => Ok(take::<1>(self.buffer, at, "a truth")? != [0]),
            None => Ok(false),
        }
    }

    /// Returns a string, which is required.
    pub(crate) fn string(&self, index: usize) -> Result<&'a str, KvError> {
        let field = self
            .field(index, 4)?
            .ok_or_else(|| damage(self.at, "a table with a name"))?;
        let at = follow(self.buffer, field, "the offset of a string")?;
        let len = u32::from_le_bytes(take(self.buffer, at, "a string")?) as usize;
        let rest = &self.buffer[at + 4..];
        match (rest.get(..len), rest.get(len)) {
            (Some(text), Some(0)) => {
                str::from_utf8(text).map_err(|_| damage(at, "a string in UTF-8"))
            }
            _ => Err(damage(at, "the length of a string, and a zero behind it")),
        }
    }

    /// Returns the tables of a vector, or none if it is absent.
    pub(crate) fn tables(
        &self,
        index: usize,
    ) -> Result<impl ExactSizeIterator<Item = Result<Self, KvError>>, KvError> {
        let buffer = self.buffer;
        let (first, count) = match self.field(index, 4)? {
            None => (0, 0),
            Some(field) => {
                let at = follow(buffer, field, "the offset of a vector")?;
                let count = u32::from_le_bytes(take(buffer, at, "a vector")?) as usize;
                if count > (buffer.len() - at - 4) / 4 {
                    return Err(damage(at, "the count of a vector"));
                }
                (at + 4, count)
            }
        };
        Ok((0..count).map(move |n| {
            let at = follow(buffer, first + 4 * n, "the offset of a table")?;
            Self::at(buffer, at)
        }))
    }
}

fn damage(offset: usize, expected: &'static str) -> KvError {
    KvError::Flatbuffer { offset, expected }
}

/// Returns `N` bytes at `at`.
fn take<const N: usize>(
    buffer: &[u8],
    at: usize,
    expected: &'static str,
) -> Result<[u8; N], KvError> {
    let bytes = buffer.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().ok_or_else(|| damage(at, expected))
}

fn u16_at(buffer: &[u8], at: usize, expected: &'static str) -> Result<u16, KvError> {
    take(buffer, at, expected).map(u16::from_le_bytes)
}

/// Returns the position that the distance at `at` leads to. The next read validates it.
fn follow(buffer: &[u8], at: usize, expected: &'static str) -> Result<usize, KvError> {
    let distance = u32::from_le_bytes(take(buffer, at, expected)?);
    at.checked_add(distance as usize)
        .filter(|&to| to <= buffer.len())
        .ok_or_else(|| damage(at, expected))
}
