//! Answers about jobs, as people read them.

pub mod bundle_diff;
pub mod changes;
pub mod returns;

pub use halite_terminal::{Format, Paint, Screen, age, count, megabytes, seconds, table, yaml};

/// A text whose digests of images are cut to the digits that tell two apart: in full, a reference is wider than a
/// terminal.
pub fn short_digest(text: &str) -> String {
    const DIGEST: &str = "@sha256:";
    let mut parts = text.split(DIGEST);
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (digits, rest) = part.split_at(digits);
        let shown = if digits.len() == 64 {
            &digits[..12]
        } else {
            digits
        };
        short.push_str(DIGEST);
        short.push_str(shown);
        short.push_str(rest);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_digest_is_cut_off() {
        let digest = "0123456789ab".to_owned() + &"c".repeat(52);
        let line = format!("mount a.b/c:1@sha256:{digest} /mnt && a.b/d@sha256:{digest}");
        let short = "mount a.b/c:1@sha256:0123456789ab /mnt && a.b/d@sha256:0123456789ab";
        assert_eq!(short_digest(&line), short);
        for text in ["", "a.b/c:1", "a@sha256:12", &format!("sha256:{digest}")] {
            assert_eq!(short_digest(text), text);
        }
    }
}
