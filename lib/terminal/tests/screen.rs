//! The visible screen on terminals of 80 and 120 columns.

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
