//! The visible screen on terminals of 80 and 120 columns.

use std::process::Command;

use halite_terminal::{Format, Screen};
use halite_testkit::pty::Pty;
use serde_json::json;

fn screen(pty: &Pty, format: Format) -> Screen {
    Screen::on(format, pty.terminal(), pty.terminal())
}

#[test]
fn a_long_line_is_cut_at_the_width_of_the_terminal_and_rewritten_in_place() {
    for columns in [80, 120] {
        let mut pty = Pty::new(columns, 24);
        let mut screen = screen(&pty, Format::Table);
        for step in 0..50 {
            screen.progress(&format!("step {step} {}", "x".repeat(300)));
        }
        let lines = pty.lines();
        assert_eq!(lines.len(), 1, "{columns}: {lines:?}");
        assert!(lines[0].starts_with("step 49 x"), "{lines:?}");
        assert!(lines[0].ends_with("x…"), "{lines:?}");
        assert_eq!(lines[0].chars().count(), usize::from(columns) - 1);
        screen.clear();
        assert!(pty.lines().is_empty());
    }
}

#[test]
fn each_host_has_a_line_below_what_scrolls_up() {
    let mut pty = Pty::new(80, 24);
    let mut screen = screen(&pty, Format::Table);
    screen.live().set("a", "a  1/36");
    screen.live().set("b", "b  1/36");
    screen.line("one  1.0 s");
    screen.live().set("a", "a  12/36");
    assert_eq!(pty.lines(), ["one  1.0 s", "a  12/36", "b  1/36"]);
    screen.note("two  2.0 s");
    screen.live().remove("a");
    assert_eq!(pty.lines(), ["one  1.0 s", "two  2.0 s", "b  1/36"]);
    let answer = json!({"x": 1});
    screen.answer(&answer, |_| "all\n".to_owned()).unwrap();
    assert_eq!(pty.lines(), ["one  1.0 s", "two  2.0 s", "all"]);
}

#[test]
fn more_hosts_than_rows_are_counted() {
    let mut pty = Pty::new(80, 6);
    let mut screen = screen(&pty, Format::Table);
    for host in 0..20 {
        screen
            .live()
            .set(&format!("w{host}"), &format!("w{host}  1/36"));
    }
    screen.line("a step  1.0 s");
    assert_eq!(
        pty.lines(),
        [
            "a step  1.0 s",
            "w0  1/36",
            "w1  1/36",
            "w10  1/36",
            "… and 17 more"
        ]
    );
    screen.clear();
    assert_eq!(pty.lines(), ["a step  1.0 s"]);
}

#[test]
fn a_host_writes_only_its_own_line_and_colours_are_sequences() {
    let mut pty = Pty::new(80, 24);
    let mut screen = screen(&pty, Format::Table);
    screen.line("before");
    let mark = screen.paint().good("✓");
    screen.progress(&format!("{mark} a\x1b[2J\x1b[Hb\r\nc\u{9b}A"));
    assert_eq!(
        pty.lines(),
        ["before", "✓ a\\u{1b}[2J\\u{1b}[Hb\\r c\\u{9b}A"]
    );
    if screen.paint().colour {
        assert!(pty.coloured().contains("\x1b[32m"), "{:?}", pty.coloured());
    }
}

/// The variable with the colours that a process of the test below must have.
const EXPECTED: &str = "HALITE_TEST_COLOURS";

#[test]
fn the_environment_decides_about_colours() {
    if let Ok(expected) = std::env::var(EXPECTED) {
        let mut pty = Pty::new(80, 24);
        let mut screen = screen(&pty, Format::Table);
        let mark = screen.paint().good("✓");
        screen.line(format!("{mark} done"));
        assert_eq!(pty.lines(), ["✓ done"]);
        let coloured = pty.coloured();
        assert_eq!(
            coloured.contains("\x1b[32m"),
            expected == "yes",
            "{coloured:?}"
        );
        return;
    }
    for (variables, expected) in [
        (&[("TERM", "xterm")][..], "yes"),
        (&[("TERM", "xterm"), ("NO_COLOR", "1")], "no"),
        (&[("TERM", "xterm"), ("CLICOLOR", "0")], "no"),
        (&[("TERM", "dumb")], "no"),
        (&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], "yes"),
    ] {
        // The environment of this process is that of all its tests.
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_environment_decides_about_colours"]);
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        let output = command.env(EXPECTED, expected).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{variables:?}: {said}"
        );
    }
}

#[test]
fn a_document_is_alone_on_standard_output_and_news_are_on_standard_error() {
    let mut pty = Pty::new(80, 24);
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut screen = Screen::on(Format::Json, out.reopen().unwrap(), pty.terminal());
    screen.line("for people");
    screen.news("! waiting for 10 s");
    screen.progress("running");
    assert_eq!(pty.lines(), ["! waiting for 10 s", "running"]);
    screen.answer(&json!(1), |_| String::new()).unwrap();
    assert_eq!(pty.lines(), ["! waiting for 10 s"]);
    assert_eq!(std::fs::read_to_string(out.path()).unwrap(), "1\n");
}

#[test]
fn a_file_gets_neither_live_lines_nor_sequences() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let on = || file.reopen().unwrap();
    let mut screen = Screen::on(Format::Table, on(), on());
    assert!(!screen.is_live());
    screen.progress("x");
    let mark = halite_terminal::Paint { colour: true }.bad("✗");
    screen.note(format!("{mark} failed"));
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "✗ failed\n");
}
