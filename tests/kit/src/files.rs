//! Files, and programs that work on them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// The shipped state tree in the sources.
#[must_use]
pub fn state_tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../states/tree")
}

/// The SHA-256 of bytes, in lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Bytes that compress badly and repeat late. Each seed gives different ones.
#[must_use]
pub fn content(size: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..size).map(|_| next()).collect()
}

/// Writes a file, replacing an existing one, with the directories above it.
pub fn put(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
    fs::write(path, content).unwrap();
}

/// All names in a directory, hidden ones included, sorted.
#[must_use]
pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Every file below a directory, as sorted relative paths.
#[must_use]
pub fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                found.push(
                    path.strip_prefix(root)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                );
            }
        }
    }
    found.sort();
    found
}

/// Runs a program of a Debian package in a directory, which is also its home, and returns its
/// output.
pub fn run(package: &str, dir: &Path, program: &str, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(dir)
        .env("GNUPGHOME", dir.join("gnupg"))
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", dir);
    let output = command.output();
    let output = output
        .unwrap_or_else(|error| panic!("{program}: {error}: install the Debian package {package}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
