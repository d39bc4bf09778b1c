//! `cargo lab bench pings`: a hundred minions pinged at once, compared with one.
//!
//! A master on loopback with a hundred real minions, each a process with its own key and
//! connection. No host is booted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::{JobOutcome, NewToken, from_text};
use halite_lab::build::Programs;
use halite_lab::progress::Board;
use halite_lab::wait;

use super::{Table, median};

/// The number of minions that are pinged at once.
const MINIONS: usize = 100;
/// The number of pings of each kind; they alternate.
const ROUNDS: usize = 15;
/// The aim: a hundred take at most this many times as long as one.
const RATIO: f64 = 5.0;
/// The declaration. Returns are only stored if there is one.
const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: bench}\n\
                       networks:\n  controlPlane: {cidrs: [10.10.0.0/24]}\n\
                       kubernetes: {version: \"1.36\"}\n";
/// Longest wait for the daemons.
const SOON: Duration = Duration::from_secs(60);

/// Measures, and prints the table.
///
/// # Errors
/// Something could not be measured, or the measurement missed an aim.
pub fn bench(progress: &mut dyn FnMut(&str)) -> Result<()> {
    let mut table = Table::default();
    rows(&mut table, progress)?;
    print!("\n{}", table.text);
    table.missed_none()
}

/// Starts the daemons, measures, and stops them.
pub(super) fn rows(table: &mut Table, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let programs = Programs::Shipped.build(&Board::plain())?;
    let work = std::path::absolute(halite_lab::cache())?.join("bench-pings");
    remove(&work)?;
    let result = measure(&programs, &work, table, progress);
    remove(&work)?;
    result
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    Ok(())
}

fn measure(
    programs: &Path,
    work: &Path,
    table: &mut Table,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    progress(&format!("a master and {MINIONS} minions on loopback"));
    let site = Site::start(programs, work)?;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    // The first pings fill caches.
    site.ping("m0", 1)?;
    site.ping("*", MINIONS)?;
    for _ in 0..ROUNDS {
        one.push(site.ping("m0", 1)?);
        all.push(site.ping("*", MINIONS)?);
    }
    let (one, all) = (median(&one), median(&all));
    table.row("ctl ping of one, on loopback", &millis(one), "");
    table.row(
        &format!("ctl ping of {MINIONS} at once, on loopback"),
        &millis(all),
        "",
    );
    let ratio = all.as_secs_f64() / one.as_secs_f64();
    table.aim(
        &format!("ping of {MINIONS} against one"),
        &format!("{ratio:.1}"),
        &format!("≤ {RATIO}"),
        ratio <= RATIO,
    );
    Ok(())
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", 1000.0 * time.as_secs_f64())
}

/// A running master and its minions.
struct Site {
    programs: PathBuf,
    work: PathBuf,
    endpoint: String,
    daemons: Vec<Daemon>,
}

/// A process that is stopped with its owner.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    fn start(programs: &Path, work: &Path) -> Result<Self> {
        // 127.128.0.0/9 has no other user, so the fixed ports are free.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = format!("127.140.{high}.{low}");
        let mut site = Self {
            programs: programs.to_owned(),
            work: work.to_owned(),
            endpoint: format!("{address}:4550"),
            daemons: Vec::new(),
        };
        fs::create_dir_all(work.join("etc"))?;
        fs::write(work.join("etc/cluster.yaml"), CLUSTER)?;
        let shown = work.display();
        let master = work.join("master.yaml");
        fs::write(
            &master,
            format!(
                "cluster: bench\nlisten: {address}:4550\nmetrics: {address}:4552\nadvertise: [{address}]\n\
                 state_dir: {shown}/master\nconfig_dir: {shown}/etc\nbundle: {shown}/bundle\n"
            ),
        )?;
        let config = master.to_string_lossy();
        site.run("halite-master", &["init", "--config", &config])?;
        site.spawn("halite-master", &["run", "--config", &config])?;
        let tokens = || site.ctl(&["token", "list"]);
        wait::until("the master", SOON, tokens)?;
        site.enrol_all()?;
        Ok(site)
    }

    /// Enrols all minions, starts them, and waits until each of them answers.
    fn enrol_all(&mut self) -> Result<()> {
        let uses = MINIONS.to_string();
        let made = self.ctl(&["token", "create", "--uses", &uses, "-o", "json"])?;
        let made: NewToken = from_text(&made)?;
        let token = made.token;
        let endpoint = self.endpoint.clone();
        for number in 0..MINIONS {
            let id = format!("m{number}");
            let config = self.work.join(format!("{id}.yaml"));
            let state = self.work.join(&id);
            let text = format!(
                "id: {id}\nmaster: {endpoint}\nstate_dir: {}\n",
                state.display()
            );
            fs::write(&config, text)?;
            let config = config.to_string_lossy();
            let mut enrol = self.command("halite-minion");
            enrol.args(["enrol", "--master", &endpoint, "--id", &id]);
            enrol
                .args(["--config", &config])
                .env("HALITE_TOKEN", &token);
            checked(&mut enrol)?;
            self.spawn("halite-minion", &["run", "--config", &config])?;
        }
        wait::until("all minions", SOON, || self.ping("*", MINIONS))?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = checked(self.command(program).args(arguments))?;
        Ok(String::from_utf8(output.stdout)?)
    }

    fn spawn(&mut self, program: &str, arguments: &[&str]) -> Result<()> {
        let log = self.work.join(format!("{}.log", self.daemons.len()));
        let child = self
            .command(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(fs::File::create(log)?)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        self.daemons.push(Daemon(child));
        Ok(())
    }

    fn ctl(&self, arguments: &[&str]) -> Result<String> {
        let identity = self.work.join("etc/operator");
        let identity = identity.to_string_lossy();
        let own = ["--master", &self.endpoint, "--identity", &identity];
        self.run("ctl", &[arguments, &own].concat())
    }

    /// Pings, and measures the whole command; this many minions must answer.
    fn ping(&self, target: &str, minions: usize) -> Result<Duration> {
        let began = Instant::now();
        let answers = self.ctl(&["ping", target, "-o", "json"])?;
        let took = began.elapsed();
        let answered = answered(&answers)?;
        ensure!(
            answered == minions,
            "{answered} of {minions} minions answered: {answers}"
        );
        Ok(took)
    }
}

/// The number of minions that answered a ping.
fn answered(answers: &str) -> Result<usize> {
    let outcome: JobOutcome = from_text(answers)?;
    Ok((outcome.minions.values()).filter(|one| one.success).count())
}

fn checked(command: &mut Command) -> Result<Output> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    if !output.status.success() {
        bail!(
            "{} failed: {}",
            command.get_program().to_string_lossy(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_minions_that_answered_count() {
        let answers = r#"{"apiVersion": "halite/v1", "kind": "JobOutcome", "retcode": 1, "minions": {"a": {"success": true, "return": true},
            "b": {"success": false, "return": null, "error": "b is not connected"}}}"#;
        assert_eq!(answered(answers).unwrap(), 1);
        assert!(answered("{}").is_err());
    }
}
