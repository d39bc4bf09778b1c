//! A small site, whose state tree is as small as it can be, and `ctl` at work there.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use halite_testkit::{Site, put};
use rustix::process::{Pid, Signal, kill_process};

/// The program under test.
pub const CTL: &str = env!("CARGO_BIN_EXE_ctl");

/// A site with a recipe that `ctl` builds, and a key `builder.key`.
pub fn site() -> Site {
    let site = Site::new();
    for name in ["bootstrap", "add_node"] {
        put(&site.path(&format!("states/orchestrate/{name}.sls")), b"{}\n");
    }
    fs::create_dir(site.path("tmp")).unwrap();
    site.written();
    done(ctl(&site, &["bundle", "key", "--unencrypted", "builder.key"]));
    site
}

/// `ctl` in the site's directory, with a home and temporary files of its own.
pub fn ctl(site: &Site, args: &[&str]) -> Command {
    within(site, CTL, args)
}

/// Builds the site's bundle, signed: into an image, or a directory.
pub fn build(site: &Site, out: &str) -> Command {
    ctl(site, &["bundle", "build", "--recipe", "recipe.yaml", "--out", out, "--key", "builder.key"])
}

/// Fills the file system `disk` up to so many bytes, and asks for the right complaint.
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
"#;

/// A script, as root of a mount namespace of its own: what it mounts goes with it. `$CTL` is the program.
pub fn script(site: &Site, text: &str) -> Command {
    let how: &[&str] =
        if rustix::process::geteuid().is_root() { &["--mount"] } else { &["--mount", "--map-root-user"] };
    let text = format!("{PRELUDE}{text}");
    let mut command = within(site, "unshare", &[how, &["sh", "-euxc", &text]].concat());
    command.env("CTL", CTL);
    command
}

fn within(site: &Site, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(site.dir.path()).stdin(Stdio::null());
    command.env("HOME", site.dir.path()).env("TMPDIR", site.path("tmp")).env("LC_ALL", "C.UTF-8");
    command
}

/// Runs to the end; all that was said.
pub fn ended(mut command: Command) -> (bool, String) {
    said(command.output().unwrap())
}

/// What is said when all is well.
pub fn done(command: Command) -> String {
    let (good, said) = ended(command);
    assert!(good, "{said}");
    said
}

/// What is said when it fails.
pub fn refused(command: Command) -> String {
    let (good, said) = ended(command);
    assert!(!good, "it should have failed: {said}");
    said
}

fn said(output: Output) -> (bool, String) {
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), text.concat())
}

/// Starts and does not wait.
pub fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub fn end(child: Child) -> (bool, String) {
    said(child.wait_with_output().unwrap())
}

/// Waits until something is there. Whether that came before the end of the process.
pub fn met(child: &mut Child, path: &Path) -> bool {
    until(child, || path.exists())
}

/// The same for whatever can be asked. It is asked again and again, since nobody announces what the process has written.
pub fn until(child: &mut Child, condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if child.try_wait().unwrap().is_some() || start.elapsed() > Duration::from_secs(120) {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Starts a command and stops it as soon as something is so. One that was done before anybody looked is started again.
pub fn caught(command: impl Fn() -> Command, condition: impl Fn() -> bool) -> Child {
    for _ in 0..10 {
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
    panic!("it was always done before anybody could look");
}

pub fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}
