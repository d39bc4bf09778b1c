//! Images for the tests, with their expected content.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use halite_iso9660::Error;
use halite_iso9660::read::IsoImage;
use halite_iso9660::write::{Content, InputFile, Placed, Volume, write};

/// Path to mode and content.
pub type Files = BTreeMap<String, (u32, Vec<u8>)>;

pub struct Made {
    pub dir: tempfile::TempDir,
    pub placed: Vec<Placed>,
}

pub fn volume() -> Volume {
    Volume {
        id: "HALITE_1_36".to_owned(),
        date: "2026-07-31T12:34:56Z".parse().unwrap(),
    }
}

pub fn sources(files: &Files) -> BTreeMap<String, InputFile> {
    let source = |(mode, content): &(u32, Vec<u8>)| InputFile {
        from: Content::Bytes(content.clone()),
        mode: *mode,
    };
    files
        .iter()
        .map(|(path, file)| (path.clone(), source(file)))
        .collect()
}

pub fn try_write(out: &Path, files: &Files) -> Result<Vec<Placed>, Error> {
    write(out, &volume(), &sources(files), &mut |_| ())
}

impl Made {
    pub fn new(files: &Files) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let placed = try_write(&dir.path().join("X.iso"), files).unwrap();
        Self { dir, placed }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn image(&self) -> PathBuf {
        self.path("X.iso")
    }
}

/// One file of each kind that an image can have.
pub fn zoo() -> Files {
    let mut files = Files::new();
    let mut add = |path: &str, mode: u32, content: &[u8]| {
        assert!(
            files
                .insert(path.to_owned(), (mode, content.to_vec()))
                .is_none(),
            "{path}"
        );
    };
    for size in [
        0,
        1,
        2047,
        2048,
        2049,
        4095,
        4096,
        4097,
        1 << 20,
        (1 << 20) + 1,
    ] {
        add(&format!("sizes/{size}"), 0o644, &bytes(size));
    }
    add("sizes/zeros", 0o644, &vec![0; 3 << 20]);
    for (name, mode) in [
        ("install", 0o755),
        ("read-only", 0o444),
        ("private", 0o600),
        ("none", 0o000),
    ] {
        add(&format!("modes/{name}"), mode, name.as_bytes());
    }
    for digit in "0123456789abcdef".chars() {
        let name: String = format!("{digit}0f1e2d3c4b5a697").repeat(4);
        add(
            &format!("images/blobs/sha256/{name}"),
            0o644,
            name.as_bytes(),
        );
    }
    for number in 0..300 {
        add(
            &format!("many/file-{number}.yaml"),
            0o644,
            format!("{number}").as_bytes(),
        );
    }
    // Long names that are equal in every part that the other views can represent.
    for number in 0..12 {
        add(
            &format!("long/{}{number}.deb", "prefix-".repeat(30)),
            0o644,
            format!("p{number}").as_bytes(),
        );
        add(
            &format!("long/{}{number:02}", "é".repeat(125)),
            0o644,
            format!("e{number}").as_bytes(),
        );
    }
    for length in [
        30, 31, 32, 63, 64, 65, 110, 112, 113, 114, 117, 118, 119, 150, 207, 252, 253,
    ] {
        add(
            &format!("long/{}", "x".repeat(length)),
            0o644,
            format!("x{length}").as_bytes(),
        );
        add(
            &format!("{}/f", "d".repeat(length)),
            0o644,
            format!("d{length}").as_bytes(),
        );
    }
    let deep: Vec<String> = (1..=20).map(|level| format!("level-{level}")).collect();
    for depth in [7, 8, 9, 20] {
        add(
            &format!("{}/at", deep[..depth].join("/")),
            0o644,
            format!("{depth}").as_bytes(),
        );
    }
    for name in [
        "README",
        "readme",
        "Readme",
        "ReadMe.md",
        "readme.MD",
        ".hidden",
        "..two",
        "trailing.",
        "a b",
        "a;b",
        "a:b",
        "a*b",
        "a?b",
        "a.b.c",
        "a_b",
        "A_B",
        "é",
        "e\u{301}",
        "日本語",
        "ß.txt",
        "😀",
        "😁",
        "~",
        "~1",
        "aaa~1",
        "-rf",
        "x86_64.tar.gz",
        "gcc-12-base_12.2.0-14+deb12u1_amd64.deb",
        "libc6_2.36-9+deb12u14_amd64.deb",
        "con",
        "nul.txt",
    ] {
        add(
            &format!("names/{name}"),
            0o644,
            format!("is {name}").as_bytes(),
        );
    }
    add(
        "names/a-b/c",
        0o644,
        b"sorted elsewhere as a path than as a name",
    );
    add("names/a/c", 0o644, b"the same");
    files
}

/// Varied bytes.
pub fn bytes(size: usize) -> Vec<u8> {
    (0_u32..)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .take(size)
        .collect()
}

/// The content of a directory.
pub fn tree(dir: &Path) -> Files {
    let mut files = Files::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let facts = path.symlink_metadata().unwrap();
            if facts.is_dir() {
                waiting.push(path);
                continue;
            }
            assert!(facts.is_file(), "{}", path.display());
            let mode = facts.permissions().mode() & 0o777;
            // The test need not run as root.
            fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o400)).unwrap();
            let content = fs::read(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            files.insert(name, (mode, content));
        }
    }
    files
}

/// The content of an image.
pub fn read(image: &IsoImage) -> Files {
    let entries = image.entries().iter();
    let content = |path| {
        let mut content = Vec::new();
        image
            .reader(path)
            .unwrap()
            .read_to_end(&mut content)
            .unwrap();
        content
    };
    entries
        .map(|entry| (entry.path.clone(), (entry.mode, content(&entry.path))))
        .collect()
}

/// Runs a program and returns its output and its error output.
pub fn run(program: &str, package: &str, args: &[&str]) -> (String, String) {
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}: install the Debian package {package}"));
    let [out, err] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(
        output.status.success(),
        "{program} {args:?} ended with {}:\n{out}{err}",
        output.status
    );
    (out, err)
}

/// Compares without printing megabytes.
pub fn assert_same(found: &Files, expected: &Files) {
    let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (path, (mode, content)) in expected {
        let (found_mode, found_content) = &found[path];
        assert_eq!(format!("{found_mode:o}"), format!("{mode:o}"), "{path}");
        assert!(found_content == content, "{path} has different content");
    }
}
