//! Builds that run in parallel with the first tests.

use std::thread;
use std::thread::JoinHandle;

use anyhow::Result;
use halite_lab::progress::Board;
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
