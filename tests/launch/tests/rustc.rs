//! The wrapper of rustc, on machines with and without a C compiler.

use std::path::Path;
use std::process::{Command, Output};

/// The wrapper.
const WRAPPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rustc");

/// The words of a compilation, with another program for rustc.
const COMPILATION: [&str; 4] = ["/bin/true", "--error-format=json", "--crate-name", "x"];

#[test]
fn a_missing_c_compiler_is_named_with_its_packages() {
    let empty = tempfile::tempdir().unwrap();
    let with_path = |path: Option<&Path>, words: &[&str]| -> Output {
        let mut command = Command::new(WRAPPER);
        command.args(words);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command.output().unwrap()
    };
    let missing = with_path(Some(empty.path()), &COMPILATION);
    let said = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(1), "{said}");
    // Cargo reads lines of JSON, and shows this part.
    let shown = r#""rendered":"error: Halite's build needs a C compiler: apt-get install gcc libc6-dev git""#;
    assert!(said.contains(shown), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    // Cargo remembers the answer to a query of the version, even a failure.
    let query = with_path(Some(empty.path()), &["/bin/true", "-vV"]);
    assert!(query.status.success(), "{query:?}");
    // This test itself was linked by a C compiler.
    let compiled = with_path(None, &COMPILATION);
    assert!(compiled.status.success(), "{compiled:?}");
}

#[test]
fn tests_are_not_optimised_and_libraries_are() {
    let words = |more: &[&str]| -> String {
        let mut command = Command::new(WRAPPER);
        command.args(["/bin/echo", "--error-format=json", "-C", "opt-level=2"]);
        let output = command.args(more).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let library = words(&["--crate-type", "lib"]);
    assert!(library.contains("-C opt-level=2"), "{library}");
    let test = words(&["--test", "--cfg", "feature=\"a b\""]);
    assert!(test.contains("-C opt-level=0"), "{test}");
    assert!(test.ends_with("--test --cfg feature=\"a b\"\n"), "{test}");
}
