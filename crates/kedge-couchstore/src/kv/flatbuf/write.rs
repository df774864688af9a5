//! Encoding of tables, front to back: a table precedes the data that it refers to.

/// A field of a table. Fields with their default value are omitted.
#[derive(Debug)]
pub(crate) enum FlatField<'a> {
    /// A number of 8 bytes.
    U64(u64),
    /// A number of 4 bytes.
    U32(u32),
    /// A Boolean.
    Bool(bool),
    /// A string; always written.
    Str(&'a str),
    /// A vector of tables; always written.
    Tables(Vec<Vec<FlatField<'a>>>),
}

impl FlatField<'_> {
    /// Returns the number of bytes in the table itself, 0 for an omitted field.
    fn bytes(&self) -> usize {
        match *self {
            Self::U64(0) | Self::U32(0) | Self::Bool(false) => 0,
            Self::U64(_) => 8,
            Self::U32(_) | Self::Str(_) | Self::Tables(_) => 4,
            Self::Bool(true) => 1,
        }
    }
}

/// Encodes the buffer whose root is a table of `fields`, in the order of their ids from 0 on.
pub(crate) fn finish(fields: &[FlatField<'_>]) -> Vec<u8> {
    let mut out = vec![0; 4];
    let root = push_table(fields, &mut out);
    point(&mut out, 0, root);
    out
}

/// Appends a table, preceded by its vtable and followed by the data that it refers to. Returns the start of the table.
fn push_table(fields: &[FlatField<'_>], out: &mut Vec<u8>) -> usize {
    let (offsets, table_len) = layout(fields);
    align(out, 2);
    let vtable = out.len();
    push_u16(4 + 2 * offsets.len(), out);
    push_u16(table_len, out);
    for &offset in &offsets {
        push_u16(offset, out);
    }
    // The first field is 4 bytes into the table and may have 8 bytes.
    while out.len() % 8 != 4 {
        out.push(0);
    }
    let table = out.len();
    out.resize(table + table_len, 0);
    put_u32(out, table, table - vtable);
    for (field, &offset) in fields.iter().zip(&offsets) {
        if offset != 0 {
            put_field(field, table + offset, out);
        }
    }
    table
}

/// Returns the offset of each field within its table, 0 for an omitted one, and the table's length. Large fields come
/// first, so that the ones before align each field; the vtable ends with the last present field.
fn layout(fields: &[FlatField<'_>]) -> (Vec<usize>, usize) {
    let mut offsets = vec![0; fields.len()];
    let mut len = 4;
    for bytes in [8, 4, 1] {
        for (offset, field) in offsets.iter_mut().zip(fields) {
            if field.bytes() == bytes {
                *offset = len;
                len += bytes;
            }
        }
    }
    while offsets.last() == Some(&0) {
        offsets.pop();
    }
    (offsets, len)
}

fn put_field(field: &FlatField<'_>, at: usize, out: &mut Vec<u8>) {
    match field {
        FlatField::U64(number) => out[at..at + 8].copy_from_slice(&number.to_le_bytes()),
        FlatField::U32(number) => out[at..at + 4].copy_from_slice(&number.to_le_bytes()),
        FlatField::Bool(truth) => out[at] = u8::from(*truth),
        FlatField::Str(text) => {
            let string = push_string(text, out);
            point(out, at, string);
        }
        FlatField::Tables(tables) => {
            let vector = push_tables(tables, out);
            point(out, at, vector);
        }
    }
}

fn push_string(text: &str, out: &mut Vec<u8>) -> usize {
    align(out, 4);
    let string = out.len();
    out.resize(string + 4, 0);
    put_u32(out, string, text.len());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    string
}

fn push_tables(tables: &[Vec<FlatField<'_>>], out: &mut Vec<u8>) -> usize {
    align(out, 4);
    let vector = out.len();
    out.resize(vector + 4 + 4 * tables.len(), 0);
    put_u32(out, vector, tables.len());
    for (n, fields) in tables.iter().enumerate() {
        let table = push_table(fields, out);
        point(out, vector + 4 + 4 * n, table);
    }
    vector
}

fn align(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

fn push_u16(number: usize, out: &mut Vec<u8>) {
    let number = u16::try_from(number).expect("a table of a few fields");
    out.extend_from_slice(&number.to_le_bytes());
}

/// Writes the distance to `to` at `at`.
fn point(out: &mut [u8], at: usize, to: usize) {
    put_u32(out, at, to - at);
}

fn put_u32(out: &mut [u8], at: usize, number: usize) {
    let number = u32::try_from(number).expect("a manifest of less than 4 GiB");
    out[at..at + 4].copy_from_slice(&number.to_le_bytes());
}
