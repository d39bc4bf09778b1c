//! The enrolment script, run with programs that only record their calls.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::{contents, make_program, of};

/// External programs that the script may call.
const PROGRAMS: [&str; 11] = [
    "cat",
    "curl",
    "id",
    "install",
    "mkdir",
    "mktemp",
    "mv",
    "rm",
    "sed",
    "sha256sum",
    "systemctl",
];
const TOKEN: &str = "id.very-secret";

/// A directory in place of the host's root, with programs.
struct Scratch {
    root: tempfile::TempDir,
    script: String,
}

impl Scratch {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let here = root.path().to_str().unwrap().to_owned();
        for directory in [
            "bin",
            "run/systemd/system",
            "etc/halite/pki",
            "etc/systemd/system",
            "usr/local/bin",
        ] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let note = format!(
            "#!/bin/sh\nprintf '%s\\n' \"${{0##*/}} $* token=${{HALITE_TOKEN-}}\" >> {here}/calls\n"
        );
        let put = |path: &str, text: &str| make_program(&root.path().join(path), text);
        for program in PROGRAMS {
            let answer = if program == "id" { "echo 0\n" } else { "" };
            put(&format!("bin/{program}"), &format!("{note}{answer}"));
        }
        put("usr/local/bin/halite-minion", &note);
        let script = contents(&of("bootstrap"), "/srv/halite/enrol.sh").to_owned();
        let mut moved = script;
        for place in ["/etc/", "/var/lib/", "/usr/local/bin/", "/run/"] {
            moved = moved.replace(place, &format!("{here}{place}"));
        }
        Self {
            root,
            script: moved,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Runs the first bytes of the script, as a shell at the end of a pipe would.
    fn run(&self, bytes: usize, args: &[&str], token: Option<&str>) -> Output {
        let part = self.path("part");
        fs::write(&part, &self.script.as_bytes()[..bytes]).unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-s", "--"])
            .args(args)
            .stdin(fs::File::open(&part).unwrap())
            .env_clear()
            .env("PATH", self.path("bin"));
        if let Some(token) = token {
            command.env("HALITE_TOKEN", token);
        }
        command.output().unwrap()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap_or_default()
    }
}

#[test]
fn a_script_that_was_cut_off_runs_nothing() {
    let scratch = Scratch::new();
    let whole = scratch.script.len();
    let lines = scratch.script.match_indices('\n').map(|(at, _)| at);
    // Each line, each byte of the end, and the end without its newline.
    let ends: Vec<usize> = lines
        .filter(|at| *at < whole - 1)
        .chain(whole - 12..whole - 5)
        .collect();
    assert!(ends.len() > 80, "{}", ends.len());
    for end in ends {
        scratch.run(end, &["--name", "worker-9"], Some(TOKEN));
        assert_eq!(scratch.calls(), "", "cut off after {end} of {whole} bytes");
        let made: Vec<_> = fs::read_dir(scratch.path("etc/halite")).unwrap().collect();
        assert_eq!(made.len(), 1, "cut off after {end} of {whole} bytes");
    }
}

#[test]
fn no_process_has_the_token_as_an_argument() {
    let scratch = Scratch::new();
    let output = scratch.run(scratch.script.len(), &["--name", "worker-9"], Some(TOKEN));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let calls = scratch.calls();
    let holders: Vec<&str> = calls.lines().filter(|call| call.contains(TOKEN)).collect();
    assert_eq!(
        holders,
        [format!(
            "halite-minion enrol --force --master 10.10.0.11:4550 --id worker-9 token={TOKEN}"
        )],
        "{calls}"
    );
}

#[test]
fn a_token_as_an_argument_is_refused_with_the_remedy() {
    let scratch = Scratch::new();
    let args = ["--name", "worker-9", "--token", TOKEN];
    let output = scratch.run(scratch.script.len(), &args, None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("in the variable HALITE_TOKEN"),
        "{said}"
    );
    assert_eq!(scratch.calls(), "");
}
