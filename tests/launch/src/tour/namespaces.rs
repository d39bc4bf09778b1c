//! Mount, UTS, PID and network namespaces around a root, as root or in a user namespace, by the
//! programs of util-linux.
//!
//! Processes inside are identified by their root directory, not by a process number that another
//! process may get: no other process is ever killed.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use super::root::{BIN, DEVICES};
use crate::errors::Context as _;
use crate::programs::run;

/// Options of `unshare`: for every user, and for an ordinary user in addition.
const SEPARATE: [&str; 6] = [
    "--mount",
    "--uts",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
];
const AS_USER: [&str; 2] = ["--user", "--map-root-user"];

/// Becomes the master in the root `$1`, as the init of the PID namespace: when it exits, all
/// processes end. The minion waits for its identity. Without `ip`, perl, which every Debian has,
/// brings the loopback interface up (SIOCSIFFLAGS, IFF_UP).
const INIT: &str = r#"
set -e
root=$1 minion_log=$2
shift 2
for device; do mount --bind "/dev/$device" "$root/dev/$device"; done
mount -t proc proc "$root/proc"
hostname worker-1 2>/dev/null || true
ip link set lo up 2>/dev/null || perl -MSocket -e '
    my $lo = pack("a16 s x22", "lo", 1);
    socket(my $socket, AF_INET, SOCK_DGRAM, 0) or die "socket: $!\n";
    ioctl($socket, 0x8914, $lo) or die "lo: $!\n"'
chroot "$root" /usr/local/bin/halite-master init
chroot "$root" /usr/local/bin/halite-minion run >"$minion_log" 2>&1 &
exec chroot "$root" /usr/local/bin/halite-master run
"#;

/// Time for killed processes to be gone.
const GONE: Duration = Duration::from_secs(10);

/// Kernel settings that deny an ordinary user what the tour needs: the file, the denying value, and
/// the command for root that allows it.
const FORBIDDING: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sysctl kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "sysctl user.max_user_namespaces=10000",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

/// The options of `unshare` that work for this user on this machine.
pub(super) fn options() -> io::Result<Vec<&'static str>> {
    options_of(&["unshare"])
}

/// As [`options`], for the user with whom this command line starts `unshare`.
fn options_of(unshare: &[&str]) -> io::Result<Vec<&'static str>> {
    let mut refused = Vec::new();
    for further in [&[][..], &AS_USER] {
        let options = [further, &SEPARATE].concat();
        let try_it = [
            "sh",
            "-c",
            "mount --bind /dev/null /dev/null && mount -t proc proc /proc",
        ];
        let mut command = Command::new(unshare[0]);
        command.args(&unshare[1..]).args(&options).args(try_it);
        match run(&mut command) {
            Ok(_) => return Ok(options),
            Err(error) => refused.push(error.to_string()),
        }
    }
    let reads = |file: &str| fs::read_to_string(file).unwrap_or_default();
    Err(io::Error::other(format!(
        "cannot make namespaces: {}; {}",
        refused.join("; in a user namespace: "),
        remedy(reads)
    )))
}

/// The kernel setting that forbids namespaces, with its remedy.
fn remedy(reads: impl Fn(&str) -> String) -> String {
    let forbidding = (FORBIDDING.iter()).find(|(file, value, _)| reads(file).trim() == *value);
    match forbidding {
        Some((file, value, command)) => {
            format!("{file} is {value}: run `{command}` as root, or `cargo lab try` as root")
        }
        None => "run it as root, and not in a container that forbids them".to_owned(),
    }
}

/// Starts master and minion. The returned child exits when the master does.
pub(super) fn start(root: &Path, master_log: &Path, minion_log: &Path) -> io::Result<Child> {
    let log =
        File::create(master_log).context(|| format!("cannot make {}", master_log.display()))?;
    // A separate session: closing the terminal, or Ctrl-C in it, stops nothing here.
    let mut command = Command::new("setsid");
    command.arg("unshare").args(options()?);
    command
        .args(["sh", "-c", INIT, "sh"])
        .arg(root)
        .arg(minion_log)
        .args(DEVICES);
    command.env_clear().env("PATH", path()).stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log);
    command.spawn().context(|| "cannot start setsid".to_owned())
}

/// A command that runs a program of the root inside.
pub(super) fn enter(root: &Path, program: &str, arguments: &[&str]) -> io::Result<Command> {
    let not_running = || io::Error::other("nothing runs; start it with `cargo lab try`");
    let init = inside(root)?
        .into_iter()
        .find(|pid| is_init(*pid))
        .ok_or_else(not_running)?;
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user"));
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={init}"))
        .args(["--mount", "--uts", "--net", "--pid"]);
    if namespace("self")? != namespace(&init.to_string())? {
        command.args(["--user", "--preserve-credentials"]);
    }
    command
        .args(["--root", "--wd", "--"])
        .arg(format!("/{BIN}/{program}"))
        .args(arguments);
    command.env_clear().env("PATH", path());
    for name in ["TERM", "NO_COLOR"] {
        command.envs(env::var_os(name).map(|value| (name, value)));
    }
    Ok(command)
}

/// Kills all processes inside, and waits until they are gone.
pub(super) fn end(root: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let left = inside(root)?;
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() > GONE {
            return Err(io::Error::other(format!(
                "cannot end the processes {left:?} in {}",
                root.display()
            )));
        }
        let pids = left.iter().map(u32::to_string);
        // A process that has already exited does not matter: the next round finds the remaining
        // ones.
        let _ = run(Command::new("sh")
            .args(["-c", "kill -KILL \"$@\"", "sh"])
            .args(pids));
        thread::sleep(Duration::from_millis(20));
    }
}

/// The processes whose root directory is this one, by their numbers on the machine.
fn inside(root: &Path) -> io::Result<Vec<u32>> {
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let own = fs::metadata(root);
    // `cargo clean` has removed it while they run.
    let deleted = PathBuf::from(format!("{} (deleted)", root.display()));
    let is_inside = |pid: &u32| {
        let link = format!("/proc/{pid}/root");
        let theirs = fs::metadata(format!("{link}/."));
        let is_same = |own| theirs.is_ok_and(|theirs| same(own, &theirs));
        own.as_ref().is_ok_and(is_same) || fs::read_link(link).is_ok_and(|path| path == deleted)
    };
    let entries = fs::read_dir("/proc").context(|| "cannot read /proc".to_owned())?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names
        .filter_map(|name| name.parse().ok())
        .filter(is_inside)
        .collect())
}

/// Returns whether a process is number 1 of its namespace.
fn is_init(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().last() == Some("1"))
}

/// The search path of the machine's programs; an ordinary user has no `sbin` in it.
fn path() -> std::ffi::OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_forbids_namespaces_is_named_with_its_remedy() {
        let of = |forbidden: &'static str, value: &'static str| {
            remedy(move |file| {
                if file.ends_with(forbidden) {
                    format!("{value}\n")
                } else {
                    String::new()
                }
            })
        };
        let text = of("max_user_namespaces", "0");
        assert!(
            text.contains("max_user_namespaces is 0: run `sysctl user.max_user_namespaces="),
            "{text}"
        );
        assert!(of("restrict_unprivileged_userns", "1").contains("apparmor"));
        let text = of("max_user_namespaces", "63000");
        assert!(text.starts_with("run it as root"), "{text}");
    }

    #[test]
    fn an_ordinary_user_gets_a_user_namespace_or_the_reason() {
        let as_nobody = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "unshare",
        ];
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let unshare = if is_root {
            // Its failure would look like that of `unshare` below.
            run(Command::new(as_nobody[0])
                .args(&as_nobody[1..4])
                .arg("true"))
            .unwrap();
            &as_nobody[..]
        } else {
            &as_nobody[4..]
        };
        match options_of(unshare) {
            Ok(options) => assert_eq!(options[..AS_USER.len()], AS_USER),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("; in a user namespace: ") && text.contains("as root"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn nothing_is_inside_a_root_that_no_process_has() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(inside(directory.path()).unwrap(), Vec::<u32>::new());
        end(directory.path()).unwrap();
        let error = enter(directory.path(), "ctl", &[]).unwrap_err();
        assert!(
            error.to_string().contains("start it with `cargo lab try`"),
            "{error}"
        );
        // This process itself is in the machine's root.
        assert!(
            inside(Path::new("/"))
                .unwrap()
                .contains(&std::process::id())
        );
    }
}
