//! The lab's signed ISO, as an operator carries it: the shipped `ctl` finds every kind of damage,
//! every program that reads images finds the same files, and no content is stored twice.

mod content;
mod damage;
mod keys;
mod places;
mod seal;
mod views;

use std::fs;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use halite_lab::progress::Board;
use halite_upstream::prepare;

use crate::test::Test;

pub use content::recipe as recipe_of;
pub(super) use keys::builder;

pub(super) const TESTS: &[Test<()>] = &[
    Test {
        name: "iso: damage to every kind of file, and between them, is found and named",
        run: damage::everywhere,
    },
    Test {
        name: "iso: a damaged, forged, truncated or foreign seal is refused",
        run: seal::everything,
    },
    Test {
        name: "iso: only signatures of trusted keys are accepted",
        run: keys::everyone,
    },
    Test {
        name: "iso: every program finds the same files",
        run: views::all,
    },
    Test {
        name: "iso: the same lock makes the same bytes, and no layer is stored twice",
        run: content::checked,
    },
];

/// The ISO, a copy that is repeatedly damaged and restored, and the keys to check it.
struct Work {
    /// Working directory, removed on drop.
    dir: PathBuf,
    /// The ISO, which no test changes.
    sealed: PathBuf,
    /// The copy.
    copy: PathBuf,
    /// The bundle from which the ISO was made.
    bundle: PathBuf,
    ctl: PathBuf,
    public: PathBuf,
}

/// Bytes to write at a position.
struct Change {
    at: u64,
    bytes: Vec<u8>,
}

/// The result of a check.
struct Verdict {
    code: Option<i32>,
    said: String,
}

impl Work {
    fn new() -> Result<Self> {
        let (bundle, iso_directory) = (
            prepare::bundle(&Board::silent())?,
            prepare::iso_directory(&Board::silent())?,
        );
        let dir = halite_lab::cache().join("iso-suite");
        remove(&dir)?;
        fs::create_dir_all(&dir)?;
        let (sealed, copy) = (
            iso_directory.join(halite_upstream::ISO),
            dir.join("copy.iso"),
        );
        fs::copy(&sealed, &copy).with_context(|| format!("cannot copy {}", sealed.display()))?;
        Ok(Self {
            dir,
            sealed,
            copy,
            bundle,
            ctl: iso_directory.join("ctl"),
            public: iso_directory.join("builder.pub"),
        })
    }

    /// `ctl` with its own home, in which no key is trusted.
    fn ctl(&self, args: &[&str]) -> Command {
        let mut ctl = Command::new(&self.ctl);
        ctl.args(args)
            .current_dir(&self.dir)
            .env("HOME", self.dir.join("home"));
        ctl
    }

    /// Runs `ctl bundle verify` on an image with a trust store.
    fn verify(&self, image: &Path, trust: &Path) -> Result<Verdict> {
        let mut ctl = self.ctl(&["bundle", "verify"]);
        verdict(ctl.arg(image).arg("--trust").arg(trust))
    }

    /// Changes the copy, verifies it, and reverts the changes. The output must contain each of
    /// `expected`, and report as many problems.
    fn finds(&self, what: &str, changes: &[Change], expected: &[String]) -> Result<()> {
        let file = File::options().read(true).write(true).open(&self.copy)?;
        let mut before = Vec::new();
        for change in changes {
            let mut bytes = vec![0; change.bytes.len()];
            file.read_exact_at(&mut bytes, change.at)?;
            ensure!(
                bytes != change.bytes,
                "{what}: that changes nothing at {}",
                change.at
            );
            file.write_all_at(&change.bytes, change.at)?;
            before.push(Change {
                at: change.at,
                bytes,
            });
        }
        let verdict = self.verify(&self.copy, &self.public);
        // Revert the last change first: changes may overlap.
        for change in before.iter().rev() {
            file.write_all_at(&change.bytes, change.at)?;
        }
        verdict?.refuses(what, expected)
    }

    /// A change that flips one bit of a byte.
    fn flipped(&self, at: u64) -> Result<Change> {
        let mut byte = [0];
        File::open(&self.copy)?.read_exact_at(&mut byte, at)?;
        Ok(Change {
            at,
            bytes: vec![byte[0] ^ 1],
        })
    }

    fn read(&self, at: u64, size: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size)?];
        File::open(&self.copy)?.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Restores everything from a position on, after the copy was truncated there or extended.
    fn restore(&self, from: u64) -> Result<()> {
        let (mut whole, mut copy) = (
            File::open(&self.sealed)?,
            File::options().write(true).open(&self.copy)?,
        );
        whole.seek(SeekFrom::Start(from))?;
        copy.set_len(from)?;
        copy.seek(SeekFrom::Start(from))?;
        std::io::copy(&mut whole, &mut copy)?;
        Ok(())
    }

    /// Checks that the unchanged copy is accepted, so that each refusal before had its own reason.
    fn sound(&self) -> Result<()> {
        self.verify(&self.copy, &self.public)?
            .accepts("the copy with nothing changed")
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = remove(&self.dir);
    }
}

impl Verdict {
    /// Checks for exit code 1 and each of the expected texts. Where the output has lines with `✗`,
    /// there must be as many as expected texts.
    fn refuses(&self, what: &str, expected: &[String]) -> Result<()> {
        let Self { code, said } = self;
        ensure!(
            *code == Some(1),
            "{what}: ctl ended with {code:?} and printed {said}"
        );
        for wanted in expected {
            ensure!(
                said.contains(wanted.as_str()),
                "{what}: {wanted:?} is not in the output of ctl: {said}"
            );
        }
        let problems = said.lines().filter(|line| line.starts_with('✗')).count();
        ensure!(
            problems == 0 || problems == expected.len(),
            "{what}: something else is named too: {said}"
        );
        Ok(())
    }

    fn accepts(&self, what: &str) -> Result<()> {
        ensure!(
            self.code == Some(0),
            "{what}: ctl ended with {:?} and said {}",
            self.code,
            self.said
        );
        Ok(())
    }
}

fn verdict(command: &mut Command) -> Result<Verdict> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(Verdict {
        code: output.status.code(),
        said: text.concat(),
    })
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}
