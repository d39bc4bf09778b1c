//! The daemons of the first host: whether each runs the program that is installed, or still the one
//! before it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

/// A daemon that a bundle brings.
pub struct Daemon {
    /// Its systemd unit.
    pub unit: &'static str,
    /// Its program, once it is installed.
    pub program: &'static str,
    /// The states that install it.
    pub sls: &'static str,
    /// The state among them that asks systemd for a restart, a moment after them.
    pub asks: &'static str,
    /// The states that restart it at once.
    pub restart: &'static str,
}

/// The master.
pub const MASTER: Daemon = Daemon {
    unit: "halite-master.service",
    program: "/usr/local/bin/halite-master",
    sls: "halite.services.master",
    asks: "halite-master-restart",
    restart: halite_states::shipped::RESTART_MASTER,
};

/// This host's minion.
pub const MINION: Daemon = Daemon {
    unit: "halite-minion.service",
    program: "/usr/local/bin/halite-minion",
    sls: "halite.services.minion",
    asks: "halite-minion-restart",
    restart: halite_states::shipped::RESTART_MINION,
};

impl Daemon {
    /// Whether it runs, but not what is installed.
    pub async fn is_outdated(&self) -> bool {
        is_another(self.pid().await, Path::new(self.program))
    }

    /// Its process, 0 when none runs.
    pub async fn pid(&self) -> u32 {
        let mut show = Command::new("systemctl");
        show.args(["show", "--property", "MainPID", "--value", self.unit])
            .stdin(Stdio::null());
        // Without an answer nobody knows; whether it serves is asked next.
        let Ok(said) = show.output().await else {
            return 0;
        };
        String::from_utf8_lossy(&said.stdout)
            .trim()
            .parse()
            .unwrap_or(0)
    }
}

/// Whether a process runs another file than the one that now has the program's name. Nobody's
/// process (0) runs none.
fn is_another(pid: u32, program: &Path) -> bool {
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
    fn a_program_that_was_replaced_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let (program, fresh) = (dir.path().join("daemon"), dir.path().join("daemon.new"));
        for file in [&program, &fresh] {
            fs::copy("/bin/sleep", file).unwrap();
        }
        let mut child = std::process::Command::new(&program)
            .arg("600")
            .spawn()
            .unwrap();
        let before = is_another(child.id(), &program);
        // As every program is installed: in one step, under the feet of whoever runs it.
        fs::rename(&fresh, &program).unwrap();
        let after = is_another(child.id(), &program);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!before && after);
        assert!(!is_another(0, &program), "nothing runs");
    }
}
