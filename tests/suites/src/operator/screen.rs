//! `ctl highstate` on a terminal: what an operator sees while hosts run and at the end.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::wait;
use halite_testkit::pty::Pty;

use super::repair;
use crate::test::{Counts, Test};

pub(super) const TEST: Test<Cluster> = Test {
    name: "operator: a highstate on a terminal fits its width and shows failures last",
    run,
};

/// Limit for a highstate.
const LIMIT: Duration = Duration::from_secs(360);
/// Rows for all that is printed, so that nothing scrolls out of sight.
const ROWS: u16 = 100;
/// The start of a path that is longer than any line.
const LONG: &str = "/run/halite-screen/";
/// The output of the state that fails on the worker, which no other text contains.
const REASON: &str = "lab-4711";

/// States after the others: one with a long path, one that runs for some seconds, and on the worker
/// one that fails. A live line shows the state that ended last, but of unchanged states only one in
/// 100 ms.
fn states() -> String {
    let long = format!("{LONG}{}", "x".repeat(200));
    format!(
        "screen-long:\n  file.absent:\n    - name: {long}\n    - onlyif: sleep 0.3; false\n\
         screen-after:\n  cmd.run:\n    - name: sleep 3\n\
         {{% if pillar.halite.node.name == '{WORKER}' %}}\n\
         screen-fails:\n  cmd.run:\n    - name: 'echo lab-$((4000+711)) >&2; exit 7'\n\
         {{% endif %}}\n"
    )
}

fn run(cluster: &Cluster) -> Result<Counts> {
    let custom = cluster.bootstrap.file("/etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    fs::create_dir_all(&custom)?;
    let written = fs::write(custom.join("init.sls"), states()).map_err(Into::into);
    let result = written.and_then(|()| {
        on_terminal(cluster, 80, true)?;
        on_terminal(cluster, 120, false)
    });
    fs::remove_dir_all(&custom)?;
    result?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

/// Runs a highstate on a terminal with this width, with `NO_COLOR` unless `colours`.
fn on_terminal(cluster: &Cluster, columns: u16, colours: bool) -> Result<()> {
    let mut pty = Pty::new(columns, ROWS);
    let mut words = vec!["env", "TERM=xterm"];
    words.extend((!colours).then_some("NO_COLOR=1"));
    words.extend([CTL, "highstate"]);
    let mut command = cluster.bootstrap.command(&words)?;
    let terminal = || pty.terminal();
    let command = command
        .stdin(terminal())
        .stdout(terminal())
        .stderr(terminal());
    let mut child = command.spawn().context("cannot start nsenter")?;
    let mut running = Vec::new();
    let status = wait::until("the highstate to end", LIMIT, || {
        let lines = pty.lines();
        let is_live = lines.last().is_some_and(|line| line.contains(LONG));
        if is_live {
            running.push(lines);
        }
        let status = child.try_wait()?;
        status.context("it still runs")
    })?;
    let lines = pty.lines();
    let screen = format!("on {columns} columns:\n{}", lines.join("\n"));
    ensure!(status.code() == Some(1), "{status}, {screen}");
    for host in [BOOTSTRAP, WORKER] {
        live(&running, host, columns).with_context(|| screen.clone())?;
    }
    end(&lines).with_context(|| screen.clone())?;
    let coloured = pty.coloured();
    ensure!(
        has_colours(&coloured) == colours,
        "colours, {screen}\n{coloured:?}"
    );
    Ok(())
}

/// Checks the live line of a host, in the screens that were seen: it is the last row, and cut at
/// the width. The worker runs after the first host, whose end is above.
fn live(screens: &[Vec<String>], host: &str, columns: u16) -> Result<()> {
    let name = format!("{host}  ");
    let is_hosts = |lines: &&Vec<String>| lines.last().is_some_and(|line| line.starts_with(&name));
    let lines = screens.iter().find(is_hosts);
    let lines = lines.with_context(|| format!("no live line of {host} in {screens:#?}"))?;
    let line = lines.last().context("an empty screen")?;
    let count = line.strip_prefix(&name).and_then(|rest| {
        let (count, _) = rest.split_once(&format!("  file.absent {LONG}"))?;
        let (done, all) = count.split_once('/')?;
        Some((done.parse::<usize>().ok()?, all.parse::<usize>().ok()?))
    });
    let (done, all) = count.with_context(|| format!("without a count: {line}"))?;
    ensure!(1 < done && done < all, "{line}");
    let width = line.chars().count();
    ensure!(
        width == usize::from(columns) - 1 && line.ends_with('…'),
        "{width} columns: {line}"
    );
    ensure!(
        host == BOOTSTRAP || heading(lines, BOOTSTRAP).is_some(),
        "the worker runs, and {BOOTSTRAP} has not scrolled up: {lines:#?}"
    );
    Ok(())
}

/// The row of a host that has ended: `worker-1: 310 states, 2 changes, 1 failed (6.1 s)`.
fn heading(lines: &[String], host: &str) -> Option<usize> {
    let name = format!("{host}: ");
    lines.iter().position(|line| {
        let rest = line.strip_prefix(&name);
        rest.is_some_and(|rest| rest.contains(" states, ") && rest.ends_with(" s)"))
    })
}

/// Checks the screen at the end: no live line, the first host, then the failure in full and the
/// summary.
fn end(lines: &[String]) -> Result<()> {
    let find = |what: &str| lines.iter().position(|line| line.contains(what));
    ensure!(find(LONG).is_none(), "a live line is left");
    let good = heading(lines, BOOTSTRAP).context("no heading of the first host")?;
    let named = find(&format!("✗ {WORKER} failed")).context("the failure was not named")?;
    let bad = heading(lines, WORKER).context("no heading of the worker")?;
    let state = find("✗ cmd.run echo lab-$").context("no failed state")?;
    let reason = find(REASON).context("no output of the failed state")?;
    let order = [good, named, bad, state, reason, lines.len() - 1];
    ensure!(order.is_sorted_by(|a, b| a < b), "order: {order:?}");
    let (heading, summary) = (&lines[bad], &lines[lines.len() - 1]);
    ensure!(heading.contains(", 1 failed ("), "{heading}");
    ensure!(
        summary.contains(" minions, ")
            && summary.contains(", 1 failed ")
            && summary.contains("(job "),
        "the last line is {summary}"
    );
    Ok(())
}

/// Returns whether a text has sequences that set colours or other attributes; `ESC [ m` resets
/// them.
fn has_colours(text: &str) -> bool {
    text.split("\x1b[").skip(1).any(|part| {
        let parameters = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        parameters.starts_with('m') && parameters.len() < part.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    const END: &str = "\
bootstrap-1: 310 states, 2 changes (9.1 s)
  ● cmd.run sleep 3  [screen-after]  (custom)
✗ worker-1 failed; the others continue
worker-1: 210 states, 3 changes, 1 failed (6.1 s)
  ✗ cmd.run echo lab-$((4000+711)) >&2; exit 7  [screen-fails]  (custom)
      stderr: lab-4711

2 minions, 520 states, 5 changes, 1 failed   (job 20261130000000000000)";

    #[test]
    fn the_end_of_a_highstate_has_its_order() {
        end(&lines(END)).unwrap();
        let (first, failure) = END.split_at(END.find("worker-1: 210").unwrap());
        for wrong in [
            // Without the reason, without seconds, with a live line, and with the failure first.
            END.replace("lab-4711", "failed"),
            END.replace("(9.1 s)", ""),
            END.replace("\n\n", &format!("\nworker-1  3/9  file.absent {LONG}x\n")),
            format!("{failure}\n{first}"),
        ] {
            assert!(end(&lines(&wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_live_line_is_cut_at_the_width() {
        let screen = |width: usize| {
            let line = format!("bootstrap-1  300/310  file.absent {LONG}");
            let rest = "x".repeat(width - line.chars().count() - 1);
            vec![lines(&format!("{line}{rest}…"))]
        };
        assert!(live(&screen(79), BOOTSTRAP, 80).is_ok());
        assert!(live(&screen(79), BOOTSTRAP, 120).is_err());
        assert!(live(&screen(80), BOOTSTRAP, 80).is_err());
        assert!(live(&screen(79), WORKER, 80).is_err());
    }

    #[test]
    fn colours_are_told_from_other_sequences() {
        assert!(has_colours("\x1b[m\x1b[31m✗\x1b[m"));
        assert!(has_colours("\x1b[1;38;5;9mx"));
        assert!(!has_colours("\x1b[?25h\x1b[m\x1b[H\x1b[Jm 12m\x1b[2;5Hm"));
    }
}
