//! Archives packed with the real programs.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Packs with the real program, as two concatenated streams, as some tools write them.
#[must_use]
pub fn packed(program: &str, parts: &[&[u8]]) -> Vec<u8> {
    let pack = |part: &[u8]| {
        let mut child = Command::new(program)
            .args(["-c", "-q"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{program}: {error}: install the Debian package xz-utils, gzip or zstd")
            });
        let (mut stdin, part) = (child.stdin.take().unwrap(), part.to_owned());
        let writer = std::thread::spawn(move || stdin.write_all(&part));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        output.stdout
    };
    parts.iter().flat_map(|part| pack(part)).collect()
}
