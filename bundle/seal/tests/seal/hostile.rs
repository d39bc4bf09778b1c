//! Trailers that were crafted to do harm: each is refused with its own error.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_seal::keys::Trust;
use halite_testkit::hex;

use crate::image::{TestImage, complaints, part, parts};

fn filled(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(2048), b'\n');
    bytes
}

fn footer(offset: usize, lines: &str) -> Vec<u8> {
    let text = format!("HALITE-SEAL-1\n{lines}");
    filled(
        format!(
            "{text}footer {offset} {} {}\n",
            text.len(),
            hex(text.as_bytes())
        )
        .as_bytes(),
    )
}

/// Replaces the footer of a sealed file with one that matches its current content.
pub fn repaired(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut lines = String::new();
    for (name, offset, size) in parts(&bytes) {
        if name == "footer" {
            continue;
        }
        let hash = if name == "image" {
            String::new()
        } else {
            format!(" {}", hex(&bytes[offset..offset + size]))
        };
        lines += &format!("{name} {offset} {size}{hash}\n");
    }
    let at = bytes.len() - 2048;
    bytes.truncate(at);
    let footer = footer(at, &lines);
    [bytes, footer].concat()
}

/// A file with a trailer of these contents, with correct digests and offsets.
fn made(image: &[u8], map: &[u8], statement: &[u8], signatures: &[&[u8]]) -> Vec<u8> {
    let mut bytes = image.to_vec();
    let mut lines = format!("image 0 {}\n", image.len());
    let parts = [("map", map), ("statement", statement)];
    for (name, content) in parts
        .into_iter()
        .chain(signatures.iter().map(|content| ("signature", *content)))
    {
        lines += &format!(
            "{name} {} {} {}\n",
            bytes.len(),
            content.len(),
            hex(content)
        );
        bytes.extend(filled(content));
    }
    bytes.extend(footer(bytes.len(), &lines));
    bytes
}

fn statement(image: &[u8], map: &[u8]) -> String {
    format!(
        r#"{{"format":1,"name":"n","version":"1","volume":"V","built":"2026-01-01T00:00:00Z","size":{},
           "sha256":"{}","map-sha256":"{}","manifest-sha256":""}}"#,
        image.len(),
        hex(image),
        hex(map)
    )
}

/// The error for these bytes as an unsigned image, which only the parser's own checks refuse.
fn said(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let iso = dir.path().join("hostile.iso");
    fs::write(&iso, bytes).unwrap();
    complaints(&iso, &Trust::unsigned()).join("\n")
}

#[test]
fn a_map_covers_every_byte_once_in_order() {
    let image = vec![7; 8192];
    let segment = |offset: u64, size: u64, more: &str| {
        let sha256 = hex(image
            .get(offset as usize..offset.saturating_add(size) as usize)
            .unwrap_or_default());
        format!(r#"{{"offset":{offset},"size":{size},"sha256":"{sha256}"{more}}}"#)
    };
    let about = |segments: &[String]| {
        let map = format!(r#"{{"format":1,"segments":[{}]}}"#, segments.join(","));
        said(&made(
            &image,
            map.as_bytes(),
            statement(&image, map.as_bytes()).as_bytes(),
            &[],
        ))
    };
    let plain = |offset, size| segment(offset, size, "");
    assert_eq!(
        about(&[plain(0, 2000), plain(2000, 6192)]),
        "",
        "a trailer made by hand can be valid"
    );
    for (segments, why) in [
        (vec![], "its map ends at byte 0 of an image of 8192"),
        (vec![plain(0, 8191)], "ends at byte 8191"),
        (vec![plain(1, 8191)], "continues at byte 1 instead of 0"),
        (
            vec![plain(0, 2000), plain(2001, 6191)],
            "continues at byte 2001 instead of 2000",
        ),
        (
            vec![plain(0, 2000), plain(1999, 6193)],
            "continues at byte 1999",
        ),
        (
            vec![plain(2000, 6192), plain(0, 2000)],
            "continues at byte 2000",
        ),
        (vec![plain(0, 8193)], "ends after the image of 8192"),
        (vec![plain(0, 8192), plain(8192, 1)], "ends after the image"),
        (vec![plain(0, 0), plain(0, 8192)], "segment of 0 bytes"),
        (
            vec![plain(0, u64::MAX)],
            "segment of 18446744073709551615 bytes",
        ),
        (vec![segment(0, 8192, r#","path":"""#)], "no valid name"),
        (
            vec![segment(0, 8192, r#","path":"a\u001b[2J""#)],
            "no valid name",
        ),
        (vec![segment(0, 8192, r#","what":1"#)], "unknown field"),
        (
            vec![plain(0, 8192).replace(&hex(&image), "XY")],
            "64 lower-case hexadecimal digits",
        ),
        (
            vec![plain(0, 8192).replace(&hex(&image), &"é".repeat(32))],
            "64 lower-case hexadecimal digits",
        ),
        (vec!["1".to_owned()], "this version cannot read"),
    ] {
        let found = about(&segments);
        assert!(found.contains(why), "{segments:?}: {found}");
    }
    let deep = "[".repeat(100_000);
    assert!(
        said(&made(
            &image,
            deep.as_bytes(),
            statement(&image, deep.as_bytes()).as_bytes(),
            &[]
        ))
        .contains("map")
    );
}

#[test]
fn a_statement_is_of_this_image_and_of_a_known_format() {
    let image = vec![7; 4096];
    let map = format!(
        r#"{{"format":1,"segments":[{{"offset":0,"size":4096,"sha256":"{}"}}]}}"#,
        hex(&image)
    );
    let about = |statement: &str| said(&made(&image, map.as_bytes(), statement.as_bytes(), &[]));
    let right = statement(&image, map.as_bytes());
    assert_eq!(about(&right), "");
    for (statement, why) in [
        (
            right.replace("4096", "2048"),
            "for an image of 2048 bytes and this one has 4096",
        ),
        (
            right.replace(&hex(map.as_bytes()), &hex(b"")),
            "and its statement has",
        ),
        (
            right.replace(r#""format":1"#, r#""format":2,"more":[]"#),
            "format 2, and only 1 is supported: use the ctl",
        ),
        (right.replace(r#""name":"n","#, ""), "missing field `name`"),
        (
            right.replace(r#""name":"n","#, r#""name":"n","name":"m","#),
            "duplicate field",
        ),
        (
            right.replace("2026", "yesterday"),
            "this version cannot read",
        ),
        ("\u{0}".to_owned(), "this version cannot read"),
    ] {
        let found = about(&statement);
        assert!(found.contains(why), "{statement}: {found}");
    }
    let other = map.replace(r#""format":1"#, r#""format":7"#);
    let found = said(&made(
        &image,
        other.as_bytes(),
        statement(&image, other.as_bytes()).as_bytes(),
        &[],
    ));
    assert!(found.contains("map has format 7"), "{found}");
}

/// The numbers of a footer are accepted only if they are the only possible ones.
#[test]
fn a_footer_cannot_ask_for_more_than_there_is() {
    let image = TestImage::small();
    image.seal(&[]);
    let bytes = image.bytes();
    let text = String::from_utf8(bytes[bytes.len() - 2048..].to_vec()).unwrap();
    let lines = text
        .strip_prefix("HALITE-SEAL-1\n")
        .and_then(|text| text.split_once("\nfooter"))
        .unwrap()
        .0;
    let words: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let about = |lines: &str| {
        let mut bytes = bytes[..bytes.len() - 2048].to_vec();
        bytes.extend(footer(bytes.len(), lines));
        said(&bytes)
    };
    assert_eq!(about(&format!("{lines}\n")), "");
    let huge = [
        "18446744073709551615",
        "18446744073709549568",
        "9223372036854775807",
        "70000000000",
        "67108865",
        "0",
    ];
    for (line, word) in [(0, 2), (1, 1), (1, 2), (2, 1), (2, 2)] {
        for number in huge {
            let mut words = words.clone();
            words[line][word] = number;
            let lines: Vec<_> = words.iter().map(|words| words.join(" ")).collect();
            let found = about(&format!("{}\n", lines.join("\n")));
            assert!(
                found.contains("footer") && found.contains("damaged"),
                "{lines:?}: {found}"
            );
        }
    }
    let hash = hex(b"");
    let signature = |offset: usize, size: usize| format!("signature {offset} {size} {hash}\n");
    for lines in [
        String::new(),
        "image 0 8192\n".to_owned(),
        lines.replace("map ", "maps "),
        lines.replace("map ", "map  "),
        lines.replace("map ", "map 0"),
        lines.replace("map ", "map +"),
        format!("{lines} \n"),
        format!("{lines} more\n"),
        format!("{lines}\nmore\n"),
        format!("{lines}\n\n"),
        format!("{lines}\n{}", signature(bytes.len() - 2048, 1)),
        format!(
            "{lines}\n{}",
            (0..9).map(|_| signature(0, 1)).collect::<String>()
        ),
        format!("{lines}\n{}", "signature\n".repeat(150)),
    ] {
        let found = about(&lines);
        assert!(
            found.contains("footer") && found.contains("damaged"),
            "{lines}: {found}"
        );
    }
}

#[test]
fn a_signature_that_is_none_is_refused() {
    let image = TestImage::small();
    let key = crate::image::key(image.dir.path(), "build");
    image.seal(std::slice::from_ref(&key));
    let bytes = image.bytes();
    let right = std::str::from_utf8(part(&bytes, "signature")).unwrap();
    let size = parts(&bytes)[0].2;
    let lines: Vec<_> = right.lines().collect();
    let algorithm = |letters: &[u8]| {
        let mut bytes = STANDARD.decode(lines[1]).unwrap();
        bytes[..2].copy_from_slice(letters);
        right.replace(lines[1], &STANDARD.encode(bytes))
    };
    let about = |signature: &str| {
        let (map, statement) = (part(&bytes, "map"), part(&bytes, "statement"));
        let iso = image.dir.path().join("other.iso");
        fs::write(
            &iso,
            made(&bytes[..size], map, statement, &[signature.as_bytes()]),
        )
        .unwrap();
        complaints(&iso, &crate::image::trust(&[&key])).join("\n")
    };
    assert_eq!(about(right), "");
    assert_eq!(
        about(&right.replace('\n', "\r\n")),
        "",
        "a signature that went through Windows"
    );
    for (signature, why) in [
        (
            right.replace("untrusted", "trusted"),
            "does not begin with `untrusted comment: `",
        ),
        (
            right.replace("\ntrusted", "\nuntrusted"),
            "does not begin with `trusted comment: `",
        ),
        (
            lines[..3].join("\n"),
            "no line with the signature of the comment",
        ),
        (lines[..1].join("\n"), "no line with the signature"),
        (format!("{right}{right}"), "has data after its four lines"),
        (
            right.replace(lines[1], &lines[1][4..]),
            "has 71 bytes instead of 74",
        ),
        (right.replace(lines[1], "RWQ="), "has 2 bytes instead of 74"),
        (right.replace(lines[1], "not base64"), "is not base64"),
        (algorithm(b"Ed"), "minisign's old form"),
        (algorithm(b"RS"), "algorithm is not minisign's"),
        // Its last bytes are missing, which some parsers do not check.
        (
            right.replace(lines[3], &lines[3][..40]),
            "has 30 bytes instead of 64",
        ),
        (right.replace(lines[3], ""), "has 0 bytes instead of 64"),
        (
            right.replace("version:1.36.3-1", "version:9.99.9-9"),
            "does not match its statement",
        ),
        ("\u{1}".to_owned(), "no line with the signature"),
    ] {
        let found = about(&signature);
        assert!(found.contains(why), "{signature}: {found}");
    }
}
