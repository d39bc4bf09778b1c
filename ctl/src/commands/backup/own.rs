//! The files of a backup from this host's own copy of the master, without the master, as
//! `halite-master save` writes them.

use std::io;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail};
use halite_pillar::masters::STANDBY_OF;
use halite_proto::framing;
use halite_proto::v1::BackupPart;
use halite_proto::v1::backup_part::Part;

use crate::paths::STATE_DIR;

/// The master's program on a standby.
const PROGRAM: &str = "/usr/local/bin/halite-master";
/// The most bytes of the program's error output that are read.
const REASON: u64 = 64 * 1024;

/// The program on this host, if it is a standby of the master.
pub fn program() -> Option<PathBuf> {
    let mark = Path::new(STATE_DIR).join(STANDBY_OF);
    mark.exists().then(|| PathBuf::from(PROGRAM))
}

/// A program that writes the parts of a backup.
pub struct Saving {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Saving {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .arg("save")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {} save", program.display()))?;
        let from = child.stdout.take().context("the program has no output")?;
        Ok(Self {
            child,
            from: BufReader::new(from),
        })
    }

    /// The next part; `None` after the last one.
    ///
    /// # Errors
    /// The program failed; the error has its reason.
    pub fn next(&mut self) -> anyhow::Result<Option<Part>> {
        match framing::read::<BackupPart>(&mut self.from) {
            Ok(Some(part)) => Ok(part.part),
            Ok(None) => self.ended().map(|()| None),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Waits until the program has ended, and checks its exit status.
    fn ended(&mut self) -> anyhow::Result<()> {
        let mut reason = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            // Unreadable output is missing in the error.
            let _ = stderr.take(REASON).read_to_string(&mut reason);
        }
        let status = self.child.wait().context("cannot wait for the program")?;
        if status.success() {
            return Ok(());
        }
        let reason = reason.trim();
        let reason = reason.strip_prefix("halite-master: ").unwrap_or(reason);
        match reason {
            "" => bail!("cannot save this standby's copy: halite-master ended with {status}"),
            _ => bail!("cannot save this standby's copy: {reason}"),
        }
    }

    fn broken(&mut self, error: io::Error) -> anyhow::Error {
        // Nothing reads its output any more.
        let _ = self.child.kill();
        match self.ended() {
            Err(reason) if error.kind() == io::ErrorKind::UnexpectedEof => reason,
            _ => anyhow::Error::new(error).context("cannot read the output of halite-master save"),
        }
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        // After a complete read it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saving(dir: &Path, script: &str) -> Saving {
        let program = dir.join("halite-master");
        let text = format!("#!/bin/sh\n{script}\n");
        halite_testkit::process::make_program(&program, &text);
        Saving::start(&program).unwrap()
    }

    #[test]
    fn parts_are_read_and_a_failure_has_the_programs_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        for part in [Part::HeadJson("{}".to_owned()), Part::End(true)] {
            framing::write(&mut bytes, &BackupPart { part: Some(part) }).unwrap();
        }
        let parts = dir.path().join("parts");
        std::fs::write(&parts, &bytes).unwrap();
        let cat = format!("cat {}", parts.display());
        let mut good = saving(dir.path(), &cat);
        assert_eq!(good.next().unwrap(), Some(Part::HeadJson("{}".to_owned())));
        assert_eq!(good.next().unwrap(), Some(Part::End(true)));
        assert_eq!(good.next().unwrap(), None);

        let fails = "echo 'halite-master: this host is not a standby' >&2; exit 1";
        let mut none = saving(dir.path(), fails);
        let error = none.next().unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot save this standby's copy: this host is not a standby"
        );

        let mut late = saving(dir.path(), &format!("{cat}; exit 3"));
        late.next().unwrap();
        late.next().unwrap();
        assert!(late.next().is_err(), "a failure after the last part");
        let mut cut = saving(dir.path(), &format!("head -c 5 {}", parts.display()));
        assert!(cut.next().is_err());
    }
}
