//! The builder is a separate program, which `ctl` runs if it is installed.

use std::path::Path;
use std::process::{Command, Output};

use halite_testkit::process::{copy_program, make_program};

/// Runs a copy of `ctl` in a directory that otherwise contains only the test's files.
fn ctl(dir: &Path, args: &[&str]) -> Output {
    let own = dir.join("bin/ctl");
    if !own.exists() {
        copy_program(Path::new(env!("CARGO_BIN_EXE_ctl")), &own);
    }
    let mut command = Command::new(own);
    command
        .args(args)
        .current_dir(dir)
        .env("PATH", dir.join("path"));
    command.output().unwrap()
}

fn script(path: &Path, text: &str) {
    make_program(path, &format!("#!/bin/sh\n{text}\n"));
}

#[test]
fn without_the_builder_its_commands_say_where_it_is_installed() {
    let dir = tempfile::tempdir().unwrap();
    let output = ctl(dir.path(), &["bundle", "lock"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(
            "cannot run halite-builder: it is neither in the directory of ctl nor in PATH"
        ),
        "{said}"
    );
}

#[test]
fn arguments_streams_and_exit_code_are_those_of_the_builder() {
    let dir = tempfile::tempdir().unwrap();
    let tell = "for word in \"$@\"; do echo \"[$word]\"; done; echo noted >&2; exit 7";
    script(&dir.path().join("path/halite-builder"), tell);
    let args = [
        "-o", "json", "bundle", "build", "--out", "x y.iso", "--key=-k",
    ];
    let output = ctl(dir.path(), &args);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "[--output]\n[json]\n[build]\n[--recipe=recipe.yaml]\n[--out=x y.iso]\n[--key=-k]\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "noted\n");
    // The program beside it takes precedence.
    script(&dir.path().join("bin/halite-builder"), "exit 8");
    assert_eq!(
        ctl(dir.path(), &["bundle", "update", "--test"])
            .status
            .code(),
        Some(8)
    );
}
