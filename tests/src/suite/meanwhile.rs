//! What a whole run needs besides Halite, made while the tests of the source tree run: those wait
//! for half of their time.

use std::thread;
use std::thread::JoinHandle;

use anyhow::Result;

use crate::lab::prerequisites;
use crate::upstream::versions::RELEASES;
use crate::{lab, upstream};

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
    let cache = lab::cache();
    // In the order in which the tests come to them.
    upstream::registry(&cache, progress)?;
    upstream::helm(&cache, progress)?;
    prerequisites::cargo_deny(&cache)?;
    for release in &RELEASES {
        upstream::ensure(&cache, release, progress)?;
    }
    Ok(())
}
