//! `cargo lab try` with existing programs, in a separate directory.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use halite_lab::build::Programs;
use halite_lab::progress::Board;
use halite_launch::tour::{Screen, Tour};

use crate::test::Counts;

/// Tests the tour, the commands that it suggests, a second tour, and its end.
pub(super) fn works((): &()) -> Result<Counts> {
    let programs = Programs::Dev.build(&Board::plain())?;
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("try");
    let mut tour = Tour::new(&programs, &state, Screen::Kept(String::new()));
    let result = shows(&mut tour, &state).and_then(|()| is_replaced(&mut tour, &state));
    let down = tour.down();
    result?;
    down?;
    ensure!(!state.exists(), "files are left in {}", state.display());
    let left = processes(&state)?;
    ensure!(left.is_empty(), "processes are left: {left:?}");
    let error = tour.enter(&["ctl", "ping"]).err();
    let error = error.context("a tour that was taken down runs a program")?;
    ensure!(error.to_string().contains("`cargo lab try`"), "{error}");
    Ok(Counts::ONE)
}

fn shows(tour: &mut Tour, state: &Path) -> Result<()> {
    tour.begin()?;
    tour.run()?;
    let Screen::Kept(text) = &tour.screen else {
        bail!("the text was not kept");
    };
    let steps: Vec<&str> = text.split("\n\n").collect();
    let step = |title: &str| {
        let step = steps.iter().copied().find(|step| step.starts_with(title));
        step.with_context(|| format!("no {title:?} in:\n{text}"))
    };
    let has = |title: &str, lines: &[&str]| -> Result<()> {
        let step = step(title)?;
        for line in lines {
            ensure!(step.contains(line), "no {line:?} in:\n{step}");
        }
        Ok(())
    };
    has(
        "Its declared states",
        &["+worker-1 belongs to try.", "/srv/app/current"],
    )?;
    has("The drift", &["-edited by hand", "0777", "/dev/null"])?;
    let clean = step("Nothing differs any more")?;
    ensure!(
        !clean.contains("/etc/motd"),
        "a repaired file is named:\n{clean}"
    );
    let motd = fs::read_to_string(state.join("root/etc/motd"))?;
    ensure!(motd.starts_with("worker-1 belongs to try.\n"), "{motd:?}");
    ensure!(!motd.contains("by hand"), "not repaired: {motd:?}");
    let proposed: Vec<&str> = (text.lines())
        .filter_map(|line| line.strip_prefix("  cargo lab try -- "))
        .collect();
    ensure!(proposed.len() == 5, "proposed: {proposed:?}");
    for line in proposed {
        let words: Vec<&str> = line.split(' ').collect();
        let output = tour.enter(&words)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{line}: {said}");
    }
    let network = fs::read_link("/proc/self/ns/net")?;
    for pid in processes(state)? {
        let own = fs::read_link(format!("/proc/{pid}/ns/net"))?;
        ensure!(
            own != network,
            "process {pid} is in the network of this machine"
        );
    }
    Ok(())
}

/// A second tour replaces the first.
fn is_replaced(tour: &mut Tour, state: &Path) -> Result<()> {
    let before = processes(state)?;
    ensure!(!before.is_empty(), "nothing runs");
    tour.run()?;
    let after = processes(state)?;
    let left: Vec<_> = before.iter().filter(|pid| after.contains(pid)).collect();
    ensure!(left.is_empty(), "of the first tour {left:?} are left");
    Ok(())
}

/// The processes whose root is the tour's.
fn processes(state: &Path) -> Result<Vec<String>> {
    let root = state.join("root");
    let is_inside = |pid: &String| {
        fs::read_link(format!("/proc/{pid}/root")).is_ok_and(|theirs| theirs == root)
    };
    let names =
        fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(is_inside).collect())
}
