//! A host whose programs are scripts, for states that keep packages and put them back.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use halite_states::low::Chunk;

use crate::support::make_program;

/// The host. Its packages are lines in the file `installed`; a script finds it below `$S`.
pub struct ScriptHost {
    root: tempfile::TempDir,
    /// The directories of real hosts that are below its root in each command.
    moved: [&'static str; 2],
}

impl ScriptHost {
    /// A host with these lines of packages, this directory of configuration, and these programs.
    /// Scripts keep their files in the directory `kept`.
    pub fn new(
        installed: &str,
        configuration: &'static str,
        kept: &'static str,
        programs: &[(&str, String)],
    ) -> Self {
        let host = Self {
            root: tempfile::tempdir().unwrap(),
            moved: [configuration, kept],
        };
        for place in [configuration, "/var/lib/halite", "/bin"] {
            fs::create_dir_all(host.at(place)).unwrap();
        }
        host.write("/installed", installed);
        let usual = [
            ("dpkg-query", "cat $S/installed"),
            ("sleep", "exit 0"),
            ("sync", "exit 0"),
        ];
        let own = programs.iter().map(|(name, text)| (*name, text.as_str()));
        for (name, text) in usual.into_iter().chain(own) {
            let program = host.at("/bin").join(name);
            make_program(&program, &format!("#!/bin/sh\n{text}\n"));
        }
        host
    }

    /// The place of a path of the host.
    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    /// The content of a file; empty without the file.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    pub fn remove(&self, path: &str) {
        fs::remove_file(self.at(path)).unwrap();
    }

    pub fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    fn shell(&self, line: &str) -> Output {
        let here = self.root.path().to_str().unwrap();
        let moved = self.moved.iter();
        let line = moved.fold(line.to_owned(), |line, path| {
            line.replace(path, &format!("{here}{path}"))
        });
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).env("S", here);
        let path = format!("{here}/bin:/usr/bin:/bin");
        shell.env("PATH", path).output().unwrap()
    }

    /// Runs a state's command if its condition holds.
    pub fn run(&self, chunk: &Chunk) -> Option<Output> {
        let mut conditions = chunk.controls.onlyif.iter();
        let holds = conditions.all(|line| self.shell(line.as_str().unwrap()).status.success());
        holds.then(|| self.shell(&chunk.name))
    }
}
