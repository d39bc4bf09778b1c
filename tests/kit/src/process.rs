//! Programs that run in a directory, each with its own home and temporary files.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A program in a directory, which is its home; its temporary files are in `tmp` there.
#[must_use]
pub fn within(dir: &Path, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
        .env("HOME", dir)
        .env("TMPDIR", dir.join("tmp"))
        .env("LC_ALL", "C.UTF-8");
    command
}

/// Makes a program from a text, with its directory. Another process writes it: while this one has a
/// file open for writing, a child that another test has just started has it open too, and until
/// that child has replaced itself nothing can run the file (ETXTBSY).
pub fn make_program(path: &Path, text: &str) {
    let line = r#"mkdir -p "$(dirname "$0")" && printf %s "$1" > "$0" && chmod 755 "$0""#;
    let mut command = Command::new("sh");
    command.args(["-ec", line]).arg(path).arg(text);
    done(command);
}

/// Copies a program in the same way, with its target directory.
pub fn copy_program(from: &Path, to: &Path) {
    let mut command = Command::new("install");
    command.args(["-D", "-m", "755"]).arg(from).arg(to);
    done(command);
}

/// Fills the file system `disk` up to this many bytes, and checks for the right complaint.
const PRELUDE: &str = r#"
fill() {
    free=$(df --output=avail --block-size=1 disk | tail -n 1)
    if [ "$free" -gt "$1" ]; then head -c $((free - $1)) /dev/zero > disk/filler; fi
}
full() {
    if "$@" > said 2>&1; then cat said; echo "it found room"; exit 1; fi
    cat said
    grep -q 'No space left on device' said
}
stop() {
    # Whatever comes between, it is not left standing.
    trap "kill -KILL $1" EXIT
    kill -STOP "$1" || return 1
    # It finishes the write that it is in.
    until grep -q '^State:.T' "/proc/$1/status"; do kill -0 "$1" || return 1; done
}
resume() {
    trap - EXIT
    kill -CONT "$1"
}
"#;

/// A script in a directory, as root of its own mount namespace: its mounts disappear with it.
/// `$CTL` is that program; `fill BYTES` leaves this many free on the file system `disk`, `full
/// COMMAND` requires that it runs out of space, `stop PID` stops a process, if it has not exited,
/// and `resume PID` resumes it.
#[must_use]
pub fn script(dir: &Path, ctl: &str, text: &str) -> Command {
    let how: &[&str] = if rustix::process::geteuid().is_root() {
        &["--mount"]
    } else {
        &["--mount", "--map-root-user"]
    };
    let text = format!("{PRELUDE}{text}");
    let mut command = within(dir, "unshare", &[how, &["sh", "-euxc", &text]].concat());
    command.env("CTL", ctl);
    command
}

fn ended(mut command: Command) -> (bool, String) {
    said(command.output().unwrap())
}

/// Runs to the end, which must be a success; returns all output.
pub fn done(command: Command) -> String {
    let (good, said) = ended(command);
    assert!(good, "{said}");
    said
}

/// Runs to the end, which must be a failure; returns all output.
pub fn refused(command: Command) -> String {
    let (good, said) = ended(command);
    assert!(!good, "it should have failed: {said}");
    said
}

fn said(output: Output) -> (bool, String) {
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), text.concat())
}

/// Starts it and does not wait; its output is kept for [`end`].
pub fn started(mut command: Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end; returns whether it succeeded, and all output.
pub fn end(child: Child) -> (bool, String) {
    said(child.wait_with_output().unwrap())
}

/// Limit of a wait: it ends a test that would hang, on the slowest machine.
const WATCHDOG: Duration = Duration::from_secs(600);

/// Waits until a path exists. Returns whether it did before the process exited.
pub fn met(child: &mut Child, path: &Path) -> bool {
    until(child, || path.exists())
}

/// The same for any condition. It is polled, since nothing announces the process's writes.
pub fn until(child: &mut Child, condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if child.try_wait().unwrap().is_some() || start.elapsed() > WATCHDOG {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Starts a command and stops it as soon as a condition holds. A command that finished before the
/// condition was checked is started again.
pub fn caught(command: impl Fn() -> Command, condition: impl Fn() -> bool) -> Child {
    for _ in 0..100 {
        let mut child = started(command());
        if until(&mut child, &condition) {
            signal(&child, Signal::STOP);
            if condition() {
                return child;
            }
            signal(&child, Signal::CONT);
        }
        let (good, said) = end(child);
        assert!(good, "{said}");
    }
    panic!("the command always ended before the condition was checked");
}

/// Sends a signal; one that comes after the exit is ignored.
pub fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}
