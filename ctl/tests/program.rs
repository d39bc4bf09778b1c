//! The program as a shell runs it: pipes, completions, contexts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

const CTL: &str = env!("CARGO_BIN_EXE_ctl");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `ctl` for a user with this directory for configuration.
fn ctl(config: &Path, words: &[&str]) -> Output {
    Command::new(CTL)
        .args(words)
        .env("XDG_CONFIG_HOME", config)
        .env_remove("HALITE_MASTER")
        .env_remove("HALITE_IDENTITY")
        .output()
        .unwrap()
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    for words in [
        &["help"][..],
        &["config", "example"],
        &["completion", "bash"],
    ] {
        let mut child = Command::new(CTL)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(text(&ended.stderr), "", "{words:?}");
        assert_eq!(ended.status.code(), Some(141), "{words:?}");
    }
}

#[test]
fn an_earlier_spelling_is_a_wrong_command_line_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let output = ctl(directory.path(), &["apply", "motd", "--target", "worker-1"]);
    assert_eq!(output.status.code(), Some(64));
    let said = text(&output.stderr);
    assert!(said.contains("ctl apply TARGET SLS"), "{said}");
}

#[test]
fn contexts_are_kept_and_name_the_master() {
    let directory = tempfile::tempdir().unwrap();
    let ctl = |words: &[&str]| ctl(directory.path(), words);
    let set = ctl(&[
        "context",
        "set",
        "lab",
        "--master",
        "127.0.0.1:9",
        "--identity",
        "/absent",
    ]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    let listed = text(&ctl(&["context", "list"]).stdout);
    assert!(
        listed.contains("*        lab   127.0.0.1:9  /absent"),
        "{listed}"
    );
    let asked = text(&ctl(&["status"]).stderr);
    assert!(asked.contains("/absent"), "{asked}");
    let unknown = text(&ctl(&["--context", "x", "status"]).stderr);
    assert!(unknown.contains("the contexts are lab"), "{unknown}");
    assert!(ctl(&["context", "delete", "lab"]).status.success());
    assert_eq!(text(&ctl(&["context", "list"]).stdout), "none\n");
}

#[test]
fn unusable_contexts_matter_only_to_commands_that_call_a_master() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("halite")).unwrap();
    for contexts in ["contexts: [", "current: gone\ncontexts: {}\n"] {
        std::fs::write(directory.path().join("halite/contexts.yaml"), contexts).unwrap();
        for words in [&["version", "--client"], &["config", "example"]] {
            let output = ctl(directory.path(), words);
            let said = text(&output.stderr);
            assert!(output.status.success(), "{contexts} {words:?}: {said}");
        }
        for words in [&["version"][..], &["status"]] {
            let output = ctl(directory.path(), words);
            let said = text(&output.stderr);
            assert!(!output.status.success(), "{contexts} {words:?}");
            assert!(said.contains("context"), "{contexts} {words:?}: {said}");
        }
        // It fails here, because this host is not a standby.
        let output = ctl(directory.path(), &["master", "promote", "--test"]);
        let said = text(&output.stderr);
        assert!(!said.contains("context"), "{contexts}: {said}");
    }
}

#[test]
fn a_shell_completes_commands_and_contexts() {
    let directory = tempfile::tempdir().unwrap();
    ctl(
        directory.path(),
        &["context", "set", "production", "--master", "127.0.0.1:9"],
    );
    let script = directory.path().join("script");
    std::fs::write(
        &script,
        ctl(directory.path(), &["completion", "bash"]).stdout,
    )
    .unwrap();
    let completed = |words: &[&str]| {
        let (last, at) = (words[words.len() - 1], words.len() - 1);
        let ask = format!(
            ". {}; COMP_WORDS=({}); COMP_CWORD={at}; _clap_complete_ctl ctl '{last}' ''; echo \"${{COMPREPLY[*]}}\"",
            script.display(),
            words
                .iter()
                .map(|word| format!("'{word}'"))
                .collect::<Vec<_>>()
                .join(" ")
        );
        let programs = Path::new(CTL).parent().unwrap().display().to_string();
        let output = Command::new("bash")
            .args(["-c", &ask])
            .env("PATH", format!("{programs}:/usr/bin:/bin"))
            .env("XDG_CONFIG_HOME", directory.path())
            .output()
            .unwrap();
        assert_eq!(text(&output.stderr), "");
        text(&output.stdout).trim().to_owned()
    };
    assert_eq!(completed(&["ctl", "bundle", "ver"]), "verify");
    assert_eq!(completed(&["ctl", "context", "use", "pro"]), "production");
    assert_eq!(
        completed(&["ctl", "operator", "create", "a", "--role", "dep"]),
        "deployer"
    );
}
