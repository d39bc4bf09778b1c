//! What a whole run needs besides Halite, made while the tests of the source tree run: those wait
//! for half of their time.

use std::thread;
use std::thread::JoinHandle;

use anyhow::Result;
use halite_upstream::cargo_deny;
use halite_upstream::versions::RELEASES;

/// The lowest share of the processors (setpriority(2)).
const LOWEST: i32 = 19;

/// Begins with it. Whoever needs a part of it before it is there waits for that part; what fails
/// here fails there again, where it is reported.
pub(super) fn begin() -> JoinHandle<()> {
    thread::spawn(|| {
        let mut told = |line: &str| println!("  meanwhile: {line}");
        if let Err(error) = make(&mut told) {
            told(&format!("{error:#}"));
        }
    })
}

fn make(progress: &mut dyn FnMut(&str)) -> Result<()> {
    // Of this thread alone, and of the programs that it starts.
    rustix::process::setpriority_process(None, LOWEST)?;
    let cache = halite_lab::cache();
    // In the order in which the tests come to them.
    halite_upstream::registry(&cache, progress)?;
    halite_upstream::helm(&cache, progress)?;
    cargo_deny::ensure(&cache)?;
    for release in &RELEASES {
        halite_upstream::ensure(&cache, release, progress)?;
    }
    Ok(())
}
