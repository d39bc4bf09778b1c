//! Builds that run in parallel with tests, which wait for half of their time.

use std::process::{Command, Stdio};
use std::thread;
use std::thread::JoinHandle;

use anyhow::Result;
use halite_lab::build::source_root;
use halite_lab::progress::Board;
use halite_lab::{build_command, timing};
use halite_upstream::cargo_tool::{self, CARGO_DENY};
use halite_upstream::prepare;
use halite_upstream::versions::Release;

use crate::source;

/// The lowest share of the processors (setpriority(2)).
const LOWEST: i32 = 19;

/// Starts to build the ISO of a release. A test that needs a part of it waits until it is done; a
/// failure here recurs in the test that needs it, which reports it.
pub(super) fn iso(release: Release) -> JoinHandle<()> {
    thread::spawn(move || {
        let board = Board::plain();
        let build = || -> Result<()> {
            // For this thread alone, and for the programs that it starts.
            rustix::process::setpriority_process(None, LOWEST)?;
            // The programs that tests of the source tree start come first.
            let mut line = board.line("tools");
            source::tools(&mut |text| line.say(text))?;
            drop(line);
            prepare::iso_directory_of(&release, &board).map(drop)
        };
        if let Err(error) = build() {
            board.say("early build", &format!("{error:#}"));
        }
    })
}

/// Starts the work that the last tests of the source tree only confirm, at a priority at which it
/// uses no time that a cluster could use (SCHED_IDLE in sched(7)).
pub(super) fn lint() -> JoinHandle<()> {
    thread::spawn(|| {
        let _ = timing::record("lint and its tools, in parallel with the clusters", || {
            let mut lint = Command::new("chrt");
            lint.args(["--idle", "0", "cargo"]).args(source::LINT);
            build_command::without_package(&mut lint);
            // The test reports findings.
            lint.current_dir(source_root())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            cargo_tool::ensure(&halite_lab::cache(), &CARGO_DENY, &["chrt", "--idle", "0"])
        });
    })
}
