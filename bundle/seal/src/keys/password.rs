//! Passwords of secret keys: from a file or from the terminal, never from a command line.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use crate::error::Error;

/// The password of a secret key. It is wiped from memory when dropped, and never displayed.
pub struct Password(Zeroizing<String>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    /// Wraps a password that the caller already has.
    #[must_use]
    pub fn new(password: String) -> Self {
        Self(Zeroizing::new(password))
    }

    /// Reads the first line of a file, which may be a pipe.
    ///
    /// # Errors
    /// The file cannot be read, other users may read it, or its first line is empty.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        const LARGEST: u64 = 4096;
        let file = File::open(path).map_err(Error::file("read", path))?;
        private(&file, path)?;
        // The capacity is for the largest password: growing would leave copies behind in memory.
        let mut text = Zeroizing::new(String::with_capacity(LARGEST as usize + 1));
        file.take(LARGEST)
            .read_to_string(&mut text)
            .map_err(Error::file("read", path))?;
        match text.lines().next() {
            None | Some("") => Err(Error::content(
                path,
                "its first line should be a password but is empty",
            )),
            Some(line) => Ok(Self::new(line.to_owned())),
        }
    }

    /// Asks at the terminal, without echo.
    ///
    /// # Errors
    /// There is no terminal, or nothing is typed.
    pub fn ask(prompt: &str) -> Result<Self, Error> {
        let program = |message: String| Error::Program {
            what: "cannot read the key's password".to_owned(),
            message,
        };
        let typed = rpassword::prompt_password(prompt)
            .map_err(|error| program(format!("{error}; without a terminal, pass it in a file")))?;
        if typed.is_empty() {
            return Err(program("nothing was entered".to_owned()));
        }
        Ok(Self::new(typed))
    }

    /// Asks twice, for a new key.
    ///
    /// # Errors
    /// There is no terminal, nothing is typed, or the two answers differ.
    pub fn ask_twice(prompt: &str) -> Result<Self, Error> {
        let (first, second) = (Self::ask(prompt)?, Self::ask("The same again: ")?);
        if first.0 == second.0 {
            return Ok(first);
        }
        let message = "the two passwords differ".to_owned();
        Err(Error::Program {
            what: "cannot read the key's password".to_owned(),
            message,
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Refuses a file that every user of the host may read.
pub(super) fn private(file: &File, path: &Path) -> Result<(), Error> {
    let status = file.metadata().map_err(Error::file("read", path))?;
    let mode = status.permissions().mode() & 0o777;
    if status.is_file() && mode & 0o007 != 0 {
        let message = format!(
            "every user of this host may read it (mode {mode:o}): `chmod 600` it, and replace the secret if other users had access"
        );
        return Err(Error::content(path, message));
    }
    Ok(())
}
