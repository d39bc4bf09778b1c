//! Formats of archives that cannot be unpacked.

/// Formats with the ends of their file names and the bytes at their start.
const FORMATS: &[(&str, &[&str], &[u8])] = &[
    ("a zip archive", &[".zip"], b"PK\x03\x04"),
    ("compressed with xz", &[".xz", ".txz"], b"\xfd7zXZ\0"),
    ("compressed with bzip2", &[".bz2", ".tbz", ".tbz2"], b"BZh"),
    (
        "compressed with zstd",
        &[".zst", ".tzst"],
        b"\x28\xb5\x2f\xfd",
    ),
    ("a 7-Zip archive", &[".7z"], b"7z\xbc\xaf\x27\x1c"),
    ("a RAR archive", &[".rar"], b"Rar!"),
];

/// The format of an archive that `archive.extracted` cannot unpack, by its name and its first bytes
/// (if they are known), in words; `None` for every other file.
#[must_use]
pub fn unsupported(name: &str, start: &[u8]) -> Option<&'static str> {
    let is_it = |(_, ends, magic): &&(&str, &[&str], &[u8])| {
        start.starts_with(magic) || ends.iter().any(|end| name.ends_with(end))
    };
    FORMATS.iter().find(is_it).map(|(words, _, _)| *words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_known_by_name_or_content() {
        assert_eq!(unsupported("a.zip", b""), Some("a zip archive"));
        assert_eq!(unsupported("a.tar", b"PK\x03\x04x"), Some("a zip archive"));
        assert_eq!(unsupported("a.tar.xz", b""), Some("compressed with xz"));
        for name in ["a.tar", "a.tar.gz", "a.tgz", "zip"] {
            assert_eq!(unsupported(name, b"\x1f\x8b"), None, "{name}");
        }
    }
}
