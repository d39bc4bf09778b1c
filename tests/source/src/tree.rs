//! The files of the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// A file of the checkout.
pub(crate) struct Text {
    /// The path from the root of the checkout, with `/`.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: String,
}

/// A package of the workspace.
pub(crate) struct Package {
    /// The name in its `Cargo.toml`.
    pub(crate) name: String,
    /// The directory, from the root of the checkout.
    pub(crate) folder: String,
    /// The packages of the workspace that its programs and libraries use.
    pub(crate) uses: Vec<String>,
    /// The root files of its libraries and programs, absolute.
    pub(crate) roots: Vec<PathBuf>,
}

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .find(|dir| dir.join("Cargo.lock").is_file())
        .unwrap()
        .to_owned()
}

/// The endings of the files that rules read.
const ENDINGS: [&str; 17] = [
    ".5", ".8", ".case", ".html", ".j2", ".jinja", ".json", ".md", ".proto", ".rs", ".sh", ".sls",
    ".sql", ".svg", ".toml", ".txt", ".yaml",
];

/// The files with one of [`ENDINGS`], sorted by path. All rules share them: reading them takes
/// longer than most rules.
static FILES: LazyLock<Vec<Text>> = LazyLock::new(read_files);

/// The files of the checkout with one of these endings, sorted by path.
pub(crate) fn files(endings: &[&str]) -> Vec<&'static Text> {
    for ending in endings {
        assert!(ENDINGS.contains(ending), "ENDINGS lacks {ending}");
    }
    let has_ending = |file: &&Text| endings.iter().any(|ending| file.path.ends_with(ending));
    let found: Vec<&Text> = FILES.iter().filter(has_ending).collect();
    assert!(!found.is_empty(), "no file ends with one of {endings:?}");
    found
}

fn read_files() -> Vec<Text> {
    let root = root();
    // Where cargo builds. Modules may have the same name.
    let built = root.join("target");
    let mut found = Vec::new();
    let mut waiting = vec![root.clone()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = entry.path();
            if path == built || name == ".git" {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                found.push(Text {
                    path: relative(&root, &path),
                    text: fs::read_to_string(&path).unwrap(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

static PACKAGES: LazyLock<Vec<Package>> = LazyLock::new(read_packages);

/// The packages of the workspace, as cargo knows them.
pub(crate) fn packages() -> &'static [Package] {
    &PACKAGES
}

fn read_packages() -> Vec<Package> {
    let root = root();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| of_metadata(&root, package))
        .collect()
}

fn of_metadata(root: &Path, package: &Value) -> Package {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let is_shipped = |dependency: &&Value| dependency["kind"].is_null();
    let is_ours = |dependency: &&Value| dependency["path"].is_string();
    let is_root = |target: &&Value| {
        let kinds = target["kind"].as_array().unwrap();
        kinds.iter().any(|kind| kind == "lib" || kind == "bin")
    };
    let manifest = PathBuf::from(text(&package["manifest_path"]));
    Package {
        name: text(&package["name"]),
        folder: relative(root, manifest.parent().unwrap()),
        uses: package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(is_ours)
            .filter(is_shipped)
            .map(|dependency| text(&dependency["name"]))
            .collect(),
        roots: package["targets"]
            .as_array()
            .unwrap()
            .iter()
            .filter(is_root)
            .map(|target| PathBuf::from(text(&target["src_path"])))
            .collect(),
    }
}

/// A path from the root of the checkout.
pub(crate) fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}
