//! Snappy, with the lengths that a hostile file states checked before they are believed.

use crate::Problem;

/// The most that one compressed byte can stand for: a copy of 64 bytes takes two or three.
const RATIO_MAX: usize = 32;

/// The length of what `compressed` decompresses to, if it is one that it can have.
pub(crate) fn inflated_bytes(compressed: &[u8], max: usize) -> Result<usize, Problem> {
    let len = snap::raw::decompress_len(compressed).map_err(|_| Problem::Snappy)?;
    if len > max.min(compressed.len().saturating_mul(RATIO_MAX)) {
        return Err(Problem::SnappyLength(len as u64));
    }
    Ok(len)
}

/// Decompresses into a buffer of exactly [`inflated_bytes`].
pub(crate) fn inflate_into(compressed: &[u8], out: &mut [u8]) -> Result<(), Problem> {
    let written = snap::raw::Decoder::new()
        .decompress(compressed, out)
        .map_err(|_| Problem::Snappy)?;
    if written == out.len() {
        Ok(())
    } else {
        Err(Problem::Snappy)
    }
}

/// Decompresses into a new buffer.
pub(crate) fn inflate(compressed: &[u8], max: usize) -> Result<Vec<u8>, Problem> {
    let mut out = vec![0; inflated_bytes(compressed, max)?];
    inflate_into(compressed, &mut out)?;
    Ok(out)
}

/// Compresses `plain` over what is in `scratch`, which is made longer where needed; the length of the result.
pub(crate) fn deflate_over(
    encoder: &mut snap::raw::Encoder,
    plain: &[u8],
    scratch: &mut Vec<u8>,
) -> usize {
    let needed = snap::raw::max_compress_len(plain.len());
    if scratch.len() < needed {
        scratch.resize(needed, 0);
    }
    encoder
        .compress(plain, scratch)
        .expect("the buffer has the length that is asked for")
}

/// Compresses `plain` and appends the result to `out`.
#[cfg(test)]
pub(crate) fn deflate(encoder: &mut snap::raw::Encoder, plain: &[u8], out: &mut Vec<u8>) {
    let mut packed = Vec::new();
    let len = deflate_over(encoder, plain, &mut packed);
    out.extend_from_slice(&packed[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_before_anything_is_allocated() {
        // States 2^32 - 1 bytes.
        let liar = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'x'];
        assert_eq!(
            inflate(&liar, usize::MAX),
            Err(Problem::SnappyLength(0xffff_ffff))
        );
        assert_eq!(inflate(&[], 10), Err(Problem::Snappy));
        let mut packed = Vec::new();
        deflate(&mut snap::raw::Encoder::new(), &[7; 1000], &mut packed);
        assert_eq!(inflate(&packed, 1000), Ok(vec![7; 1000]));
        assert_eq!(inflate(&packed, 999), Err(Problem::SnappyLength(1000)));
        packed.pop();
        assert_eq!(inflate(&packed, 1000), Err(Problem::Snappy));
    }
}
