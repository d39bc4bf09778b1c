//! Builds what a whole run needs while the tests of the source tree run: those wait for half of
//! their time.

use std::thread;
use std::thread::JoinHandle;

use anyhow::Result;
use halite_lab::build;
use halite_lab::progress::Board;
use halite_upstream::versions::RELEASES;
use halite_upstream::{cargo_deny, prepare};

/// The lowest share of the processors (setpriority(2)).
const LOWEST: i32 = 19;

/// Begins the builds. A test that needs one of them waits until it is done; one that fails here
/// fails again in the test that needs it, which reports it.
pub(super) fn begin() -> JoinHandle<()> {
    thread::spawn(|| {
        let board = Board::plain();
        if let Err(error) = build_all(&board) {
            board.say("early build", &format!("{error:#}"));
        }
    })
}

fn build_all(board: &Board) -> Result<()> {
    // Of this thread alone, and of the programs that it starts.
    rustix::process::setpriority_process(None, LOWEST)?;
    let cache = halite_lab::cache();
    // In the order in which the tests need them.
    let mut line = board.line("tools");
    halite_upstream::registry(&cache, &mut |text| line.say(text))?;
    halite_upstream::helm(&cache, &mut |text| line.say(text))?;
    cargo_deny::ensure(&cache)?;
    drop(line);
    for release in &RELEASES {
        prepare::iso_directory_of(release, board)?;
    }
    build::other_minion(board)?;
    Ok(())
}
