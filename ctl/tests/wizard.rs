//! `ctl config wizard` on a pseudo-terminal, and with answers from a file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use halite_testkit::pty::Pty;

const CTL: &str = env!("CARGO_BIN_EXE_ctl");
/// A valid cluster document of an operator.
const OLD: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: old}\n\
    networks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: \"1.35\"}\ncustom: {motd: hi}\n";
/// The operator's input for each question.
const TYPED: &[&str] = &[
    "Prod",
    "prod",
    "",
    "",
    "10.0.0.0/16",
    "?",
    "",
    "",
    "10.0.0.100",
    "<",
    "",
    "",
    "",
    "y",
    "",
    "y",
    "",
    "ntp1.example.com, ntp2.example.com",
    "",
    "bootstrap, registry, etcd, control-plane, worker",
    "",
];

fn fixture(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wizard");
    directory.join(name)
}

/// Compares a text with a golden file.
fn same(name: &str, text: &str) {
    let golden = fixture(name);
    if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
        std::fs::write(&golden, text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(
        text, expected,
        "{name}: HALITE_UPDATE_GOLDENS=1 accepts this"
    );
}

/// The wizard in a directory, for the first host of the fixtures.
fn wizard(program: &mut Command, directory: &Path) {
    program
        .args(["config", "wizard", "--grains"])
        .arg(fixture("grains.json"))
        .current_dir(directory)
        .env("XDG_CONFIG_HOME", directory);
}

/// A wizard on a terminal.
struct Session {
    pty: Pty,
    child: Child,
}

impl Session {
    fn new(columns: u16, directory: &Path, further: &[&str]) -> Self {
        Self::start(Command::new(CTL), columns, directory, further)
    }

    fn start(mut program: Command, columns: u16, directory: &Path, further: &[&str]) -> Self {
        let pty = Pty::new(columns, 250);
        wizard(&mut program, directory);
        program
            .args(further)
            .stdin(pty.terminal())
            .stdout(pty.terminal())
            .stderr(pty.terminal());
        let child = program.spawn().unwrap();
        Self { pty, child }
    }

    /// Waits for the n-th question.
    fn wait(&mut self, number: usize) {
        self.pty
            .wait_until(|lines| lines.iter().filter(|line| is_prompt(line)).count() == number);
    }

    /// Types each text when the next question is displayed.
    fn answer(&mut self, texts: &[&str]) {
        for (number, text) in texts.iter().enumerate() {
            self.wait(number + 1);
            self.pty.type_text(&format!("{text}\n"));
        }
    }

    fn end(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.wait().unwrap();
        (status, self.pty.lines())
    }
}

/// Returns whether a line has a question's prompt.
fn is_prompt(line: &str) -> bool {
    let end = line
        .strip_prefix('[')
        .map_or(Some(line), |rest| rest.split_once("] ").map(|(_, end)| end));
    end.is_some_and(|end| end == ">" || end.starts_with("> "))
}

fn content(directory: &Path, file: &str) -> String {
    std::fs::read_to_string(directory.join(file)).unwrap()
}

#[test]
fn a_session_on_a_terminal_writes_the_documents() {
    for columns in [80, 40] {
        let directory = tempfile::tempdir().unwrap();
        let mut session = Session::new(columns, directory.path(), &[]);
        session.answer(TYPED);
        let (status, lines) = session.end();
        assert_eq!(status.code(), Some(0), "{lines:#?}");
        same(
            &format!("transcript-{columns}.txt"),
            &(lines.join("\n") + "\n"),
        );
        for line in &lines {
            // A command must be one line to be copied.
            let is_long = line.chars().count() > usize::from(columns);
            assert!(
                !is_long || is_prompt(line) || line.starts_with("next: "),
                "{line}"
            );
        }
        same("cluster.yaml", &content(directory.path(), "cluster.yaml"));
        same("cp-1.yaml", &content(directory.path(), "nodes/cp-1.yaml"));
        let data = std::fs::metadata(directory.path().join("cluster.yaml")).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
    }
}

/// A session of an operator who replaces documents and ends it at the fifth question with a key.
fn aborted(program: Command, key: &str, end: impl Fn(Session)) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("cluster.yaml"), OLD).unwrap();
    let mut session = Session::start(program, 80, directory.path(), &["--yes"]);
    session.answer(&["new", "", "", ""]);
    session.wait(5);
    session.pty.type_text(key);
    end(session);
    assert_eq!(content(directory.path(), "cluster.yaml"), OLD);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn ctrl_c_leaves_the_old_documents() {
    // Ctrl-C is a signal only on the controlling terminal, which is gone at the end of the session.
    // A shell ignores the signal for a command in the background, and its children inherit that.
    let mut program = Command::new("env");
    program.args(["--default-signal=INT", "setsid", "-c", CTL]);
    aborted(program, "\x03", |mut session| {
        let status = session.child.wait().unwrap();
        assert_eq!(status.signal(), Some(2), "{status}");
    });
}

#[test]
fn the_end_of_the_input_leaves_the_old_documents() {
    aborted(Command::new(CTL), "\x04", |session| {
        let (status, lines) = session.end();
        assert_eq!(status.code(), Some(1));
        let said = lines.join(" ");
        assert!(
            said.ends_with("the input has ended; nothing was written"),
            "{said}"
        );
    });
}

#[test]
fn existing_documents_are_replaced_after_a_question_and_give_the_defaults() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("cluster.yaml"), OLD).unwrap();
    let question = |lines: &[String]| lines.join(" ").ends_with("Replace it? [y/N]");
    let mut session = Session::new(80, directory.path(), &[]);
    session.pty.wait_until(question);
    session.pty.type_text("\n");
    let (status, lines) = session.end();
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    assert_eq!(content(directory.path(), "cluster.yaml"), OLD);

    let mut session = Session::new(80, directory.path(), &[]);
    session.pty.wait_until(question);
    session.pty.type_text("y\n");
    let all = [""; 13];
    session.answer(&all);
    let (status, lines) = session.end();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let text = content(directory.path(), "cluster.yaml");
    for part in ["name: old", "version: \"1.35\"", "custom: {motd: hi}"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Runs the wizard without a terminal.
fn without_terminal(directory: &Path, further: &[&str]) -> Output {
    let mut program = Command::new(CTL);
    wizard(&mut program, directory);
    program.args(further).stdin(Stdio::null()).output().unwrap()
}

fn with_answers(directory: &Path, answers: &str, further: &[&str]) -> Output {
    std::fs::copy(fixture(answers), directory.join(answers)).unwrap();
    let words = [&["--answers", answers], further].concat();
    without_terminal(directory, &words)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn without_a_terminal_the_error_names_the_file_of_answers() {
    let directory = tempfile::tempdir().unwrap();
    let output = without_terminal(directory.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("without a terminal") && said.contains("--answers"),
        "{said}"
    );
}

#[test]
fn answers_from_a_file_write_the_same_documents() {
    let directory = tempfile::tempdir().unwrap();
    let output = with_answers(directory.path(), "good.yaml", &["-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer = text(&output.stdout);
    assert!(answer.contains("\"valid\": true"), "{answer}");
    for (file, golden) in [
        ("cluster.yaml", "cluster.yaml"),
        ("nodes/cp-1.yaml", "cp-1.yaml"),
    ] {
        let expected = std::fs::read_to_string(fixture(golden)).unwrap();
        assert_eq!(content(directory.path(), file), expected);
    }
    // The second time, it would replace them.
    let output = with_answers(directory.path(), "good.yaml", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("--yes"),
        "{}",
        text(&output.stderr)
    );
    let output = with_answers(directory.path(), "good.yaml", &["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Under another name, the first host still has one document.
    let answers = std::fs::read_to_string(fixture("good.yaml")).unwrap();
    let renamed = answers.replace("node.metadata.name: cp-1", "node.metadata.name: cp-2");
    std::fs::write(directory.path().join("renamed.yaml"), renamed).unwrap();
    let output = without_terminal(directory.path(), &["--answers", "renamed.yaml", "--yes"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("removed ./nodes/cp-1.yaml"), "{said}");
    let nodes = std::fs::read_dir(directory.path().join("nodes")).unwrap();
    let names: Vec<_> = nodes.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["cp-2.yaml"]);
}

#[test]
fn all_problems_of_answers_are_reported_with_their_places() {
    let directory = tempfile::tempdir().unwrap();
    let output = with_answers(directory.path(), "bad.yaml", &[]);
    assert_eq!(output.status.code(), Some(1));
    same("bad.txt", &text(&output.stderr));
    assert!(!directory.path().join("cluster.yaml").exists());
}
