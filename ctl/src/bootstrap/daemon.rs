//! The daemons of the first host. After an installation, a daemon may still run its previous
//! program.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

/// A daemon of a bundle.
pub struct Daemon {
    /// Its systemd unit.
    pub unit: &'static str,
    /// The path of its installed program.
    pub program: &'static str,
    /// The states that install it.
    pub sls: &'static str,
    /// The state among them that schedules a restart for a moment later.
    pub restart_state: &'static str,
    /// The states that restart it immediately.
    pub restart_sls: &'static str,
}

/// The master.
pub const MASTER: Daemon = Daemon {
    unit: "halite-master.service",
    program: "/usr/local/bin/halite-master",
    sls: "halite.services.master",
    restart_state: "halite-master-restart",
    restart_sls: halite_states::shipped::RESTART_MASTER,
};

/// This host's minion.
pub const MINION: Daemon = Daemon {
    unit: "halite-minion.service",
    program: "/usr/local/bin/halite-minion",
    sls: "halite.services.minion",
    restart_state: "halite-minion-restart",
    restart_sls: halite_states::shipped::RESTART_MINION,
};

impl Daemon {
    /// Returns true if it runs a program other than the installed one.
    pub async fn is_outdated(&self) -> bool {
        runs_other_file(self.pid().await, Path::new(self.program))
    }

    /// Its process id; 0 if it does not run.
    pub async fn pid(&self) -> u32 {
        let mut show = Command::new("systemctl");
        show.args(["show", "--property", "MainPID", "--value", self.unit])
            .stdin(Stdio::null());
        // Without an answer from systemd, the next step finds out whether the daemon serves.
        let Ok(output) = show.output().await else {
            return 0;
        };
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .unwrap_or(0)
    }
}

/// Returns true if a process runs a file other than the one at the program's path. Process 0 is
/// a daemon that does not run.
fn runs_other_file(pid: u32, program: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|status| (status.dev(), status.ino()));
    match (file(Path::new(&format!("/proc/{pid}/exe"))), file(program)) {
        (Ok(runs), Ok(installed)) => runs != installed,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_runs_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let (program, fresh) = (dir.path().join("daemon"), dir.path().join("daemon.new"));
        for file in [&program, &fresh] {
            halite_testkit::process::copy_program(Path::new("/bin/sleep"), file);
        }
        let mut child = std::process::Command::new(&program)
            .arg("600")
            .spawn()
            .unwrap();
        let before = runs_other_file(child.id(), &program);
        // Programs are installed like this: renamed over the file that a process may be running.
        fs::rename(&fresh, &program).unwrap();
        let after = runs_other_file(child.id(), &program);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!before && after);
        assert!(!runs_other_file(0, &program), "nothing runs");
    }
}
