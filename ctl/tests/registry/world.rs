//! A running registry with pushed content, and `ctl` at work on its files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use halite_testkit::distribution::Registry;
use halite_testkit::process::{signal, within};
use halite_testkit::registry::{Content, OCI_INDEX, OCI_MANIFEST};
use halite_testkit::{Authority, content, names, process};
use rustix::process::Signal;
use serde_json::Value;

/// The program under test.
const CTL: &str = env!("CARGO_BIN_EXE_ctl");

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ANY: &str =
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json";

pub struct World {
    pub registry: Registry,
    dir: tempfile::TempDir,
}

/// The output of `ctl`.
pub struct CtlOutput {
    pub good: bool,
    pub answer: Value,
    pub text: String,
}

impl CtlOutput {
    pub fn number(&self, key: &str) -> u64 {
        self.answer[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {}", self.text))
    }

    /// The backup's name.
    pub fn name(&self) -> String {
        self.answer["backup"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", self.text))
            .to_owned()
    }

    /// Returns true if the output has each of these parts.
    pub fn has(&self, parts: &[&str]) -> bool {
        parts.iter().all(|part| self.text.contains(part))
    }
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        // A restore acts as the owner of the data directory, which has to reach it.
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(at.join("tmp")).unwrap();
        // The registry's data directory, as `Registry` names it.
        fs::create_dir(at.join("storage")).unwrap();
        let registry = Registry::start(at, &Authority::new(at));
        Self { registry, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path below the registry's layout in its data directory.
    pub fn live(&self, path: &str) -> PathBuf {
        self.path("storage/docker/registry/v2").join(path)
    }

    /// The path in a backup.
    pub fn kept(&self, backup: &str, path: &str) -> PathBuf {
        self.path("backups")
            .join(backup)
            .join("docker/registry/v2")
            .join(path)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut words = [&["registry"], args].concat();
        if args.first() == Some(&"restore") {
            words.push("--yes");
        }
        within(self.dir.path(), CTL, &words)
    }

    /// A script in the registry's directory.
    pub fn script(&self, text: &str) -> Command {
        process::script(self.dir.path(), CTL, text)
    }

    pub fn run(&self, args: &[&str]) -> CtlOutput {
        let output = self
            .command(&[args, &["-o", "json"]].concat())
            .output()
            .unwrap();
        let text =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        CtlOutput {
            good: output.status.success(),
            answer,
            text: text.concat(),
        }
    }

    pub fn done(&self, args: &[&str]) -> CtlOutput {
        let said = self.run(args);
        assert!(said.good, "{args:?}: {}", said.text);
        said
    }

    pub fn refused(&self, args: &[&str]) -> CtlOutput {
        let said = self.run(args);
        assert!(!said.good, "{args:?} should have failed: {}", said.text);
        said
    }

    pub fn backup(&self) -> CtlOutput {
        self.done(&BACKUP)
    }

    /// Pushes everything and pulls it again.
    pub fn push(&self, name: &str, all: &Content) {
        self.registry.push(name, all);
        self.serves(name, all);
    }

    /// Every manifest by tag and by digest, and every blob, matches the pushed content.
    pub fn serves(&self, name: &str, all: &Content) {
        for (reference, (kind, bytes)) in &all.manifests {
            let reference = reference.rsplit_once('/').unwrap().1;
            let got = self
                .registry
                .get(&format!("{name}/manifests/{reference}"), kind);
            assert!(got.as_ref() == Some(bytes), "{name} {reference}: {got:?}");
        }
        for (digest, bytes) in &all.blobs {
            let got = self.registry.get(&format!("{name}/blobs/{digest}"), "*/*");
            assert!(
                got.as_ref() == Some(bytes),
                "{name} {digest} differs or is missing"
            );
        }
    }

    /// Checks that every tag of a repository can be pulled completely; returns the number of tags.
    pub fn complete(&self, name: &str) -> usize {
        let Some(list) = self.registry.get(&format!("{name}/tags/list"), "*/*") else {
            return 0;
        };
        let list: Value = serde_json::from_slice(&list).unwrap();
        let tags = list["tags"].as_array().cloned().unwrap_or_default();
        for tag in &tags {
            self.pull(name, tag.as_str().unwrap());
        }
        tags.len()
    }

    fn pull(&self, name: &str, reference: &str) {
        let got = self
            .registry
            .get(&format!("{name}/manifests/{reference}"), ANY);
        let got = got.unwrap_or_else(|| panic!("{name}: {reference} is missing"));
        let manifest: Value = serde_json::from_slice(&got).unwrap();
        for child in manifest["manifests"].as_array().into_iter().flatten() {
            self.pull(name, child["digest"].as_str().unwrap());
        }
        for blob in manifest["layers"]
            .as_array()
            .into_iter()
            .flatten()
            .chain(manifest.get("config"))
        {
            let digest = blob["digest"].as_str().unwrap();
            let got = self.registry.get(&format!("{name}/blobs/{digest}"), "*/*");
            assert!(got.is_some(), "{name}: {digest} of {reference} is missing");
        }
    }

    pub fn has(&self, name: &str, reference: &str) -> bool {
        self.registry
            .get(&format!("{name}/manifests/{reference}"), ANY)
            .is_some()
    }

    /// The names of the backups.
    pub fn backups(&self) -> Vec<String> {
        let names = names(&self.path("backups")).into_iter();
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// Starts the command and stops it once `there` is true. If it ended before the first check,
    /// resets the world and starts it again.
    pub fn stopped(&self, args: &[&str], there: impl Fn() -> bool, undo: impl Fn()) -> Child {
        for _ in 0..20 {
            let mut child = process::started(self.command(args));
            if process::until(&mut child, &there) {
                signal(&child, Signal::STOP);
                if there() {
                    return child;
                }
                signal(&child, Signal::CONT);
            }
            // It ended before the first check.
            let (good, said) = process::end(child);
            assert!(good, "{said}");
            undo();
        }
        panic!("it always ended before the first check")
    }

    /// Returns true while a backup is being made.
    pub fn is_partial(&self) -> bool {
        self.path("backups").join(PARTIAL).exists()
    }
}

/// The name of a backup that is being made or removed.
pub const PARTIAL: &str = ".partial";
pub const BACKUP: [&str; 5] = ["backup", "--data", "storage", "--out", "backups"];
pub const RESTORE: [&str; 4] = ["restore", "backups", "--data", "storage"];

/// An image for two platforms under a tag, with layers of these sizes; `seed` makes images differ.
pub fn image(name: &str, tag: &str, sizes: &[usize], seed: u32) -> Content {
    let mut all = Content::default();
    let layers: Vec<_> = (seed..)
        .zip(sizes)
        .map(|(seed, size)| content(*size, seed))
        .collect();
    let layers: Vec<(&str, &[u8])> = layers
        .iter()
        .map(|layer| (GZIP, layer.as_slice()))
        .collect();
    let platforms = ["linux/amd64", "linux/arm64"];
    let images: Vec<_> = platforms
        .iter()
        .map(|platform| all.image(name, false, platform, &layers))
        .collect();
    let index = all.index(name, OCI_INDEX, &images);
    all.tag(name, tag, &index);
    all
}

/// An image without an index.
pub fn plain_image(name: &str, tag: &str, size: usize, seed: u32) -> Content {
    let mut all = Content::default();
    let descriptor = all.image(name, false, "linux/amd64", &[(GZIP, &content(size, seed))]);
    assert!(all.manifests.values().all(|(kind, _)| kind == OCI_MANIFEST));
    all.tag(name, tag, &descriptor);
    all
}

/// The digest of the largest blob.
pub fn largest(all: &Content) -> String {
    all.blobs
        .iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .unwrap()
        .0
        .clone()
}

/// The path of a blob, below the registry's layout.
pub fn place(digest: &str) -> String {
    let hex = digest.strip_prefix("sha256:").unwrap();
    format!("blobs/sha256/{}/{hex}/data", &hex[..2])
}

/// Changes one byte in the middle of a file.
pub fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// A file or directory: relative name, inode, mode, owner, content.
pub type FileEntry = (String, u64, u32, (u32, u32), Vec<u8>);

/// All entries below a path.
pub fn all_of(root: &Path) -> Vec<FileEntry> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let facts = fs::symlink_metadata(&path).unwrap();
            let content = if facts.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            found.push((
                name,
                facts.ino(),
                facts.mode(),
                (facts.uid(), facts.gid()),
                content,
            ));
            if facts.is_dir() {
                waiting.push(path);
            }
        }
    }
    found.sort();
    found
}
