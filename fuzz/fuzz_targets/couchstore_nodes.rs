//! Couchstore files whose every checksum is right: what headers, nodes and bodies say comes from the input, which
//! otherwise would hardly get past the checksums.
//!
//! The input is a list of pieces, each a chunk of the file, and then a header over them. Pointers are numbers of
//! pieces, as a random number of 48 bits would never be the place of one, and what they say is true unless the input
//! says otherwise.
#![no_main]

use kedge_couchstore::{OnDamage, Snapshot};
use libfuzzer_sys::fuzz_target;

#[path = "support/input.rs"]
mod input;
#[path = "support/couchstore.rs"]
mod support;

use input::Input;
use support::{ask_everything, disk_with, options, path};

const BLOCK_BYTES: usize = 4096;
const PIECES_MAX: usize = 60;

/// A chunk of the file.
#[derive(Clone, Default)]
struct Piece {
    offset: u64,
    disk_bytes: u64,
    /// Of a node, what a pointer to it has to say.
    subtree_bytes: u64,
    totals: Totals,
    last_key: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    live: u64,
    deleted: u64,
    body_bytes: u64,
}

impl Totals {
    fn add(&mut self, other: Totals) {
        self.live += other.live;
        self.deleted += other.deleted;
        self.body_bytes += other.body_bytes;
    }

    /// As each tree has them: 16, 5 or no bytes.
    fn encode(&self, tree: u8) -> Vec<u8> {
        let be40 = |number: u64| number.to_be_bytes()[3..].to_vec();
        match tree % 3 {
            0 => {
                let body_bytes = be48(self.body_bytes).to_vec();
                [be40(self.live), be40(self.deleted), body_bytes].concat()
            }
            1 => be40(self.live + self.deleted),
            _ => Vec::new(),
        }
    }

    fn or_a_lie(mut self, input: &mut Input<'_>) -> Self {
        if input.lies() {
            self.live = input.byte().into();
            self.body_bytes = input.byte().into();
        }
        self
    }
}

#[derive(Clone)]
struct Doc {
    seqno: u64,
    body: u64,
    body_bytes: u64,
    deleted: bool,
    content_meta: u8,
    key: Vec<u8>,
    rev_meta: Vec<u8>,
}

/// A file in the making.
struct File {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Of the last leaf by id: one by seqno may have the same.
    documents: Vec<Doc>,
}

impl File {
    fn put(&mut self, payload: &[u8]) {
        for byte in payload {
            if self.bytes.len().is_multiple_of(BLOCK_BYTES) {
                self.bytes.push(0);
            }
            self.bytes.push(*byte);
        }
    }

    fn chunk(&mut self, body: &[u8], about: Piece) {
        let disk_bytes = body.len() as u64 + 8;
        self.pieces.push(Piece {
            offset: self.bytes.len() as u64,
            disk_bytes,
            subtree_bytes: about.subtree_bytes + disk_bytes,
            ..about
        });
        self.put(&(body.len() as u32 | 0x8000_0000).to_be_bytes());
        self.put(&crc32c::crc32c(body).to_be_bytes());
        self.put(body);
    }

    fn node(&mut self, plain: &[u8], about: Piece) {
        let packed = snap::raw::Encoder::new().compress_vec(plain);
        self.chunk(&packed.expect("a small node"), about);
    }

    /// A piece by number, of those that are there.
    fn piece(&self, number: u8) -> Piece {
        let number = usize::from(number).checked_rem(self.pieces.len());
        number.map_or_else(Piece::default, |number| self.pieces[number].clone())
    }
}

fn be48(number: u64) -> [u8; 6] {
    let mut bytes = [0; 6];
    bytes.copy_from_slice(&number.to_be_bytes()[2..]);
    bytes
}

fn lengths(key: usize, value: u64) -> [u8; 5] {
    let mut bytes = [0; 5];
    bytes.copy_from_slice(&((key as u64) << 28 | value).to_be_bytes()[3..]);
    bytes
}

fn put_entry(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&lengths(key.len(), value.len() as u64));
    out.extend_from_slice(&[key, value].concat());
}

impl Doc {
    fn take(file: &File, input: &mut Input<'_>) -> Self {
        let body = file.piece(input.byte());
        Doc {
            seqno: input.byte().into(),
            body: body.offset,
            body_bytes: body.disk_bytes,
            deleted: input.byte() % 4 == 3,
            content_meta: input.byte() & 0x83,
            key: input.short(12).to_vec(),
            rev_meta: input.short(30).to_vec(),
        }
    }

    fn key_in(&self, tree: u8) -> Vec<u8> {
        match tree % 3 {
            1 => be48(self.seqno).to_vec(),
            _ => self.key.clone(),
        }
    }

    fn value_in(&self, tree: u8) -> Vec<u8> {
        let body = be48(self.body | u64::from(self.deleted) << 47);
        let rest = [0, 0, 0, 0, 0, 1, self.content_meta];
        match tree % 3 {
            0 => {
                let disk_bytes = (self.body_bytes as u32).to_be_bytes();
                let fixed = [&be48(self.seqno)[..], &disk_bytes, &body, &rest];
                [&fixed.concat()[..], &self.rev_meta].concat()
            }
            1 => {
                let lengths = lengths(self.key.len(), self.body_bytes);
                [&lengths[..], &body, &rest, &self.key, &self.rev_meta].concat()
            }
            _ => self.rev_meta.clone(),
        }
    }

    fn totals(&self) -> Totals {
        Totals {
            live: u64::from(!self.deleted),
            deleted: u64::from(self.deleted),
            body_bytes: self.body_bytes,
        }
    }
}

fn put_leaf(file: &mut File, tree: u8, input: &mut Input<'_>) {
    let mut documents = if tree % 3 == 1 && !input.lies() {
        file.documents.clone()
    } else {
        let count = 1 + input.byte() % 6;
        (0..count).map(|_| Doc::take(file, input)).collect()
    };
    if !input.lies() {
        documents.sort_by_key(|doc| doc.key_in(tree));
        documents.dedup_by_key(|doc| doc.key_in(tree));
    }
    let mut plain = vec![1];
    let mut about = Piece::default();
    for doc in &documents {
        put_entry(&doc.key_in(tree), &doc.value_in(tree), &mut plain);
        about.totals.add(doc.totals());
        about.last_key = doc.key_in(tree);
    }
    if tree % 3 == 0 {
        file.documents = documents;
    }
    file.node(&plain, about);
}

fn put_interior(file: &mut File, tree: u8, input: &mut Input<'_>) {
    let mut plain = vec![0];
    let mut about = Piece::default();
    for _ in 0..1 + input.byte() % 6 {
        let child = file.piece(input.byte());
        let key = if input.lies() {
            input.short(12).to_vec()
        } else {
            child.last_key
        };
        let totals = child.totals.or_a_lie(input);
        let sums = totals.encode(tree);
        let mut value = [be48(child.offset), be48(child.subtree_bytes)].concat();
        value.extend_from_slice(&(sums.len() as u16).to_be_bytes());
        value.extend_from_slice(&sums);
        put_entry(&key, &value, &mut plain);
        about.subtree_bytes += child.subtree_bytes;
        about.totals.add(totals);
        about.last_key = key;
    }
    file.node(&plain, about);
}

fn header_body(file: &File, input: &mut Input<'_>) -> Vec<u8> {
    let version = 14 - input.byte() % 4;
    let update_seqno = 255 - u64::from(input.byte());
    let mut body = [&[version][..], &be48(update_seqno), &[0; 12]].concat();
    let mut roots = Vec::new();
    // In the order of a header: by seqno, by id, local.
    for tree in [1, 0, 2] {
        let number = input.byte();
        let mut root = Vec::new();
        if number != 0 {
            let piece = file.piece(number);
            root = [be48(piece.offset), be48(piece.subtree_bytes)].concat();
            root.extend_from_slice(&piece.totals.or_a_lie(input).encode(tree));
        }
        body.extend_from_slice(&(root.len() as u16).to_be_bytes());
        roots.extend_from_slice(&root);
    }
    if version >= 13 {
        body.extend_from_slice(&[0; 8]);
    }
    if version >= 14 {
        body.extend_from_slice(&be48(u64::MAX << 1));
    }
    body.extend_from_slice(&roots);
    if input.lies() {
        let at = usize::from(input.byte());
        if let Some(byte) = body.get_mut(at) {
            *byte ^= input.byte();
        }
    }
    body
}

fn put_header(file: &mut File, input: &mut Input<'_>) {
    let body = header_body(file, input);
    let crc = if body[0] == 11 {
        crc32fast::hash(&body)
    } else {
        crc32c::crc32c(&body)
    };
    let bytes = &mut file.bytes;
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes.push(1);
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes.extend_from_slice(&body);
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut file = File {
        bytes: vec![0],
        pieces: Vec::new(),
        documents: Vec::new(),
    };
    for _ in 0..usize::from(input.byte()) % PIECES_MAX {
        let kind = input.byte();
        match kind % 8 {
            0 => file.chunk(input.short(255), Piece::default()),
            1 => file.node(input.short(255), Piece::default()),
            2..6 => put_leaf(&mut file, kind / 8, &mut input),
            _ => put_interior(&mut file, kind / 8, &mut input),
        }
    }
    put_header(&mut file, &mut input);
    let disk = disk_with(&file.bytes);
    if let Ok(snapshot) = Snapshot::open(&disk, path(), &options(OnDamage::Recover)) {
        ask_everything(&snapshot);
    }
});
