//! Bech32 (BIP 173) for 32 bytes, as age writes its keys: a prefix, `1`, the bytes as characters of
//! five bits, and a checksum of six characters.

/// The characters, by value.
const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATOR: [u32; 5] = [
    0x3b6a_57b2,
    0x2650_8e6d,
    0x1ea1_19fa,
    0x3d42_33dd,
    0x2a14_62b3,
];
/// Characters of the checksum.
const CHECKSUM: usize = 6;
/// Characters of 32 bytes: 256 bits in groups of five, the last of them with four bits of padding.
const LENGTH: usize = 52;

/// Decodes a text with this prefix, which is in lower case. The text must be all lower case or all
/// upper case. `None` if it is invalid.
#[must_use]
pub fn decode(prefix: &str, text: &str) -> Option<[u8; 32]> {
    let (lower, upper) = (text.to_ascii_lowercase(), text.to_ascii_uppercase());
    if text != lower && text != upper {
        return None;
    }
    let values = lower.strip_prefix(prefix)?.strip_prefix('1')?;
    let value = |byte: u8| CHARACTERS.iter().position(|known| *known == byte);
    let values: Option<Vec<u8>> = values
        .bytes()
        .map(|byte| u8::try_from(value(byte)?).ok())
        .collect();
    let values = values.filter(|values| values.len() == LENGTH + CHECKSUM)?;
    if polymod(prefix, &values) != 1 {
        return None;
    }
    let mut bytes = [0; 32];
    for (number, bit) in (0..256).map(|bit| (bit / 8, bit)) {
        let set = values[bit / 5] >> (4 - bit % 5) & 1;
        bytes[number] |= set << (7 - bit % 8);
    }
    // The padding must be zero, so that no two texts name the same key.
    (values[LENGTH - 1] & 0x0f == 0).then_some(bytes)
}

/// Encodes 32 bytes with a prefix, in lower case.
#[must_use]
pub fn encode(prefix: &str, bytes: &[u8; 32]) -> String {
    let mut values = [0; LENGTH + CHECKSUM];
    for bit in 0..256 {
        let set = bytes[bit / 8] >> (7 - bit % 8) & 1;
        values[bit / 5] |= set << (4 - bit % 5);
    }
    let checksum = polymod(prefix, &values) ^ 1;
    for (place, value) in values[LENGTH..].iter_mut().enumerate() {
        let shift = 5 * (CHECKSUM - 1 - place);
        *value = u8::try_from(checksum >> shift & 31).unwrap_or_default();
    }
    let character = |value: &u8| char::from(CHARACTERS[usize::from(*value)]);
    let text: String = values.iter().map(character).collect();
    format!("{prefix}1{text}")
}

/// The checksum's polynomial over prefix and values.
fn polymod(prefix: &str, values: &[u8]) -> u32 {
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    let all = high.chain([0]).chain(low).chain(values.iter().copied());
    all.fold(1, |sum, value| {
        let top = sum >> 25;
        let shifted = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
        GENERATOR
            .iter()
            .enumerate()
            .filter(|(bit, _)| top >> bit & 1 == 1)
            .fold(shifted, |sum, (_, generator)| sum ^ generator)
    })
}
