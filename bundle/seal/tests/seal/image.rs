//! Images for the tests: files of whole sectors with files in them. The bytes are arbitrary,
//! because the seal does not parse ISO 9660.

use std::fs;
use std::path::{Path, PathBuf};

use halite_errors::chain;
use halite_iso9660::write::Placed;
use halite_seal::keys::{PublicKey, SecretKey, Trust, generate};
use halite_seal::{Error, Facts, SealReport};

pub struct TestImage {
    pub dir: tempfile::TempDir,
    pub iso: PathBuf,
    pub placed: Vec<Placed>,
}

pub fn facts() -> Facts {
    Facts {
        name: "halite".to_owned(),
        version: "1.36.3-1".to_owned(),
        volume: "HALITE_1_36_3".to_owned(),
        built: "2026-11-20T10:00:00Z".parse().unwrap(),
        stated: "manifest.json".to_owned(),
    }
}

/// An unencrypted key in its own files.
pub fn key(dir: &Path, name: &str) -> SecretKey {
    let path = dir.join(format!("{name}.key"));
    generate(&path, None, None).unwrap();
    load(&path)
}

pub fn load(path: &Path) -> SecretKey {
    SecretKey::load(path, &mut |path| {
        panic!("{} asks for a password", path.display())
    })
    .unwrap()
}

pub fn trust(keys: &[&SecretKey]) -> Trust {
    Trust::new(
        keys.iter()
            .map(|key| key.public().clone())
            .collect::<Vec<PublicKey>>(),
    )
}

pub fn check(iso: &Path, trust: &Trust) -> Result<SealReport, Error> {
    halite_seal::check(iso, trust, &mut |_| {})
}

/// The problems of an image: the reason for its refusal, or the damage in it. Empty when it is
/// sound.
pub fn complaints(iso: &Path, trust: &Trust) -> Vec<String> {
    match check(iso, trust) {
        Ok(report) => report.problems.iter().map(ToString::to_string).collect(),
        Err(error) => vec![chain(&error)],
    }
}

impl TestImage {
    /// Two sectors before the files, each file in its own sectors, one sector after them. The
    /// content of a file is derived from its name.
    pub fn new(files: &[(&str, u64)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes: Vec<u8> = (0..4096_u32).map(|at| (at % 251) as u8).collect();
        let mut placed = Vec::new();
        for (path, size) in files {
            let offset = bytes.len() as u64;
            placed.push(Placed {
                path: (*path).to_owned(),
                offset,
                size: *size,
            });
            bytes.extend(
                (0..*size).map(|at| path.as_bytes()[at as usize % path.len()] ^ (at >> 8) as u8),
            );
            bytes.resize(bytes.len().next_multiple_of(2048), 0);
        }
        bytes.resize(bytes.len() + 2048, 7);
        let iso = dir.path().join("halite.iso");
        fs::write(&iso, bytes).unwrap();
        Self { dir, iso, placed }
    }

    pub fn small() -> Self {
        Self::new(&[
            ("manifest.json", 300),
            ("images/blobs/sha256/aa", 5000),
            ("images/blobs/sha256/bb", 5000),
        ])
    }

    pub fn seal(&self, keys: &[SecretKey]) {
        halite_seal::seal(&self.iso, &self.placed, &facts(), keys, &mut |_| {}).unwrap();
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.iso).unwrap()
    }

    pub fn offset(&self, path: &str) -> u64 {
        self.placed
            .iter()
            .find(|placed| placed.path == path)
            .unwrap()
            .offset
    }
}

/// The parts of a sealed file according to its footer: name, offset and size of each.
pub fn parts(bytes: &[u8]) -> Vec<(String, usize, usize)> {
    let footer = std::str::from_utf8(&bytes[bytes.len() - 2048..]).unwrap();
    let part = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        (
            words[0].to_owned(),
            words[1].parse().unwrap(),
            words[2].parse().unwrap(),
        )
    };
    footer
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(part)
        .collect()
}

/// The content of a part.
pub fn part<'a>(bytes: &'a [u8], name: &str) -> &'a [u8] {
    let (_, offset, size) = parts(bytes)
        .into_iter()
        .find(|(part, ..)| part == name)
        .unwrap();
    &bytes[offset..offset + size]
}
