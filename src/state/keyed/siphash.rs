//! SipHash-1-3 of bytes that lie in one piece: the function of the crate `siphasher`, without a branch for how many bytes the last
//! word has. Keys have many lengths, in an order that no processor foresees.

/// The hash of `bytes` with this seed.
#[inline]
pub(super) fn of([k0, k1]: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, _) = bytes.as_chunks();
    for word in words {
        state = compressed(state, u64::from_le_bytes(*word));
    }
    let length = (bytes.len() as u64) << 56;
    let [v0, v1, v2, v3] = compressed(state, length | last_word(bytes));
    let [v0, v1, v2, v3] = round(round(round([v0, v1, v2 ^ 0xff, v3])));
    v0 ^ v1 ^ v2 ^ v3
}

/// The bytes after the last whole word.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    if let Some(last) = bytes.last_chunk() {
        // Without those before them: all eight, if there are none.
        let left = bytes.len() % 8;
        return u64::from_le_bytes(*last) >> (8 * (7 - left)) >> 8;
    }
    let mut word = 0;
    for byte in bytes.iter().rev() {
        word = word << 8 | u64::from(*byte);
    }
    word
}

#[inline]
fn compressed([v0, v1, v2, v3]: [u64; 4], word: u64) -> [u64; 4] {
    let [v0, v1, v2, v3] = round([v0, v1, v2, v3 ^ word]);
    [v0 ^ word, v1, v2, v3]
}

#[inline]
fn round([mut v0, mut v1, mut v2, mut v3]: [u64; 4]) -> [u64; 4] {
    v0 = v0.wrapping_add(v1);
    v1 = v1.rotate_left(13) ^ v0;
    v0 = v0.rotate_left(32);
    v2 = v2.wrapping_add(v3);
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.wrapping_add(v3);
    v3 = v3.rotate_left(21) ^ v0;
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v2 = v2.rotate_left(32);
    [v0, v1, v2, v3]
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher13;

    #[test]
    fn bytes_of_each_length_have_the_hash_that_they_have_elsewhere() {
        let seed = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let bytes: Vec<u8> = (0..600_u32)
            .map(|at| ((at * 167 + 91) >> 2) as u8)
            .collect();
        for end in 0..bytes.len() {
            for bytes in [&bytes[..end], &bytes[end / 3..end]] {
                let expected = SipHasher13::new_with_keys(seed[0], seed[1]).hash(bytes);
                assert_eq!(super::of(seed, bytes), expected, "{} bytes", bytes.len());
            }
        }
    }
}
