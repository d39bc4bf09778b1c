//! `cargo lab`: `try`, and for every other verb the lab's program, which it builds first.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use halite_launch::cargo::{self, is_fresh};
use halite_launch::tour::{self, Screen, Tour};
use halite_launch::{dependencies, programs};

/// The program of every verb but `try`.
const LAB: &str = "lab";

/// The programs that `test` needs: one Cargo compiles their last crates in parallel.
const TESTED: [&str; 5] = [
    LAB,
    "ctl",
    "halite-builder",
    "halite-master",
    "halite-minion",
];

/// The time that the programs of `try` take to build.
const TRY_TIME: &str = "about three minutes the first time, on two processors";

/// The help of `try`.
const TRY_USAGE: &str = "\
Start a master and a minion in their own namespaces, and show a highstate, a drift and its repair.
Nothing of this machine is read or changed.

Usage: cargo lab try                     start, replacing a running one, and show it
       cargo lab try -- PROGRAM [ARGS]   run ctl, halite-master or halite-minion inside
       cargo lab try --down              stop it and remove its files
";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = match arguments.split_first() {
        Some((verb, rest)) if verb == "try" => attempt(rest),
        _ => launch(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Becomes the lab's program. Its own output goes to standard error: some verbs print a path.
fn launch(arguments: &[OsString]) -> io::Result<()> {
    programs::require(&[("git", "git")])?;
    let lab = cargo::programs()?.join(LAB);
    let fresh = is_fresh(&lab);
    let tests = arguments.first().is_some_and(|verb| verb == "test")
        && !arguments
            .iter()
            .any(|flag| flag == "--list" || flag == "--help");
    let built = if tests && !fresh { &TESTED[..] } else { &[LAB] };
    if !fresh {
        let long = if lab.exists() && !tests {
            "less than a minute"
        } else {
            "about two minutes"
        };
        let what = built.join(", ");
        eprintln!("building {what}: {long} on two processors");
        restore(&mut |text| eprintln!("{text}"));
    }
    cargo::build(built, fresh)?;
    let error = Command::new(&lab).args(arguments).exec();
    Err(io::Error::new(
        error.kind(),
        format!("cannot start {}: {error}", lab.display()),
    ))
}

/// Restores cached dependencies; Cargo compiles the rest.
fn restore(say: &mut dyn FnMut(&str)) {
    let restored = cargo::programs()
        .and_then(|programs| dependencies::restore(&cargo::target(&programs), &["debug"], say));
    if let Err(error) = restored {
        say(&format!("dependencies are compiled again: {error}"));
    }
}

/// `cargo lab try`.
fn attempt(arguments: &[OsString]) -> io::Result<()> {
    let built = cargo::programs()?;
    let mut tour = Tour::new(&built, &cargo::target(&built).join("try"), Screen::Terminal);
    let words: Vec<_> = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    match words
        .iter()
        .map(AsRef::as_ref)
        .collect::<Vec<&str>>()
        .as_slice()
    {
        [] => {
            tour.begin()?;
            println!("Building {}: {TRY_TIME}.", tour::PROGRAMS.join(", "));
            restore(&mut |text| println!("{text}"));
            cargo::build(&tour::PROGRAMS, false)?;
            tour.run()
        }
        ["--down"] => tour.down(),
        ["--help" | "-h"] => {
            print!("{TRY_USAGE}");
            Ok(())
        }
        ["--", command @ ..] if !command.is_empty() => Err(tour.enter(command)?.exec()),
        _ => Err(io::Error::other(format!(
            "cannot read these arguments\n\n{TRY_USAGE}"
        ))),
    }
}
