//! Snappy compression. Decompression validates the stated length before it allocates, because a hostile file may state
//! any.

use crate::DamageKind;

/// Largest number of bytes that one compressed byte can represent: a copy of 64 bytes takes two or three.
const RATIO_MAX: usize = 32;

/// Returns the length of the decompressed data, after checking that it is possible and at most `max`.
pub(crate) fn inflated_bytes(compressed: &[u8], max: usize) -> Result<usize, DamageKind> {
    let len = snap::raw::decompress_len(compressed).map_err(|_| DamageKind::Snappy)?;
    if len > max.min(compressed.len().saturating_mul(RATIO_MAX)) {
        return Err(DamageKind::SnappyLength(len as u64));
    }
    Ok(len)
}

/// Decompresses into a buffer of exactly [`inflated_bytes`].
pub(crate) fn inflate_into(compressed: &[u8], out: &mut [u8]) -> Result<(), DamageKind> {
    let written = snap::raw::Decoder::new()
        .decompress(compressed, out)
        .map_err(|_| DamageKind::Snappy)?;
    if written == out.len() {
        Ok(())
    } else {
        Err(DamageKind::Snappy)
    }
}

/// Decompresses into a new buffer.
pub(crate) fn inflate(compressed: &[u8], max: usize) -> Result<Vec<u8>, DamageKind> {
    if let Some(literal) = only_literal(compressed)
        && literal.len() <= max
    {
        return Ok(literal.to_vec());
    }
    let mut out = vec![0; inflated_bytes(compressed, max)?];
    inflate_into(compressed, &mut out)?;
    Ok(out)
}

/// Returns the stored bytes if they are one literal, as incompressible data is.
fn only_literal(compressed: &[u8]) -> Option<&[u8]> {
    let (mut len, mut rest) = (0_u64, compressed);
    for shift in [0, 7, 14, 21, 28] {
        let (byte, behind) = rest.split_first()?;
        (len, rest) = (len | u64::from(byte & 0x7f) << shift, behind);
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (tag, rest) = rest.split_first()?;
    if tag & 3 != 0 {
        return None;
    }
    // The length minus one, or the number of bytes that hold it.
    let (less_one, literal) = match usize::from(tag >> 2) {
        less_one @ 0..60 => (less_one as u64, rest),
        more => {
            let (bytes, literal) = rest.split_at_checked(more - 59)?;
            let number = |number, byte: &u8| number << 8 | u64::from(*byte);
            (bytes.iter().rev().fold(0, number), literal)
        }
    };
    (literal.len() as u64 == len && less_one + 1 == len).then_some(literal)
}

/// Compresses `plain` into `scratch`, which grows if necessary. Returns the length of the result.
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
    fn inflate_checks_the_length_before_it_allocates() {
        // It states 2^32 - 1 bytes.
        let liar = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'x'];
        assert_eq!(
            inflate(&liar, usize::MAX),
            Err(DamageKind::SnappyLength(0xffff_ffff))
        );
        assert_eq!(inflate(&[], 10), Err(DamageKind::Snappy));
        let mut packed = Vec::new();
        deflate(&mut snap::raw::Encoder::new(), &[7; 1000], &mut packed);
        assert_eq!(inflate(&packed, 1000), Ok(vec![7; 1000]));
        assert_eq!(inflate(&packed, 999), Err(DamageKind::SnappyLength(1000)));
        packed.pop();
        assert_eq!(inflate(&packed, 1000), Err(DamageKind::Snappy));
    }

    #[test]
    fn incompressible_bytes_are_found_as_one_literal() {
        let mut state = 1_u32;
        let mut random = |len: usize| -> Vec<u8> {
            let next = |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            (0..len).map(next).collect()
        };
        for len in [
            1, 59, 60, 61, 62, 255, 256, 257, 512, 4000, 65_536, 65_537, 70_000,
        ] {
            let plain = random(len);
            let mut packed = Vec::new();
            deflate(&mut snap::raw::Encoder::new(), &plain, &mut packed);
            // Longer ones are compressed in parts.
            if len <= 65_536 {
                assert_eq!(only_literal(&packed), Some(&*plain), "{len}");
            }
            assert_eq!(inflate(&packed, len), Ok(plain), "{len}");
            for damaged in 0..packed.len().min(8) {
                let mut packed = packed.clone();
                packed[damaged] ^= 0x14;
                let expected = snap::raw::Decoder::new().decompress_vec(&packed);
                assert_eq!(
                    inflate(&packed, 1 << 30).ok(),
                    expected.ok(),
                    "{len} {damaged}"
                );
            }
            packed.push(0);
            assert_eq!(inflate(&packed, len), Err(DamageKind::Snappy), "{len}");
        }
    }
}
