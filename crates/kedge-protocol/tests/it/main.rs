//! Tests of the codecs through their public interface.

mod commands;
mod dcp;
mod features;
mod frame_infos;
mod frames;
mod replies;
mod shapes;
mod subdoc;
mod text;
mod text_classic;
mod text_meta;
mod text_stream;

use kedge_protocol::binary::{Parse, Request, parse_frame};

/// Most bytes of a body in tests.
const MAX_BODY: usize = 1 << 20;

/// The one request that `bytes` is.
#[track_caller]
fn whole_request(bytes: &[u8]) -> Request<'_> {
    match parse_frame(bytes, MAX_BODY) {
        Parse::Frame { request, consumed } if consumed == bytes.len() => request,
        other => panic!("{bytes:02x?} is not one request: {other:?}"),
    }
}

/// Bytes written as hexadecimal digits and spaces.
#[track_caller]
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit"))
        .collect();
    assert_eq!(digits.len() % 2, 0);
    digits
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect()
}
