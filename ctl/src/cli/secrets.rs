//! The command line of `ctl secrets`.

use std::path::PathBuf;

use clap::Subcommand;

/// `ctl secrets`.
#[derive(Debug, Subcommand)]
pub enum Secrets {
    /// List the secrets, each with the hosts that get it and the file with its value. No value is
    /// shown.
    List,
    /// Edit the encrypted values in $VISUAL, $EDITOR or vi.
    ///
    /// The text has one line `NAME: VALUE` for each secret that the cluster document names. While
    /// you edit it, it is in a memory file system, never on a disk. It is encrypted and written
    /// only if it is valid; otherwise the problems are shown, and you can continue with the same
    /// text.
    Edit,
    /// Move the values from the cluster document into the encrypted file.
    ///
    /// Names, roles and nodes stay in the cluster document. Repeat an interrupted command to
    /// complete it. The previous text may still be in older backups and in unused blocks of the
    /// disk: change the values if others may read those.
    Encrypt {
        /// Show what would be moved; change nothing.
        #[arg(long)]
        test: bool,
    },
    /// List those who can decrypt the values: the master's host, its standbys, and the recovery
    /// recipients, which are those of backups. The exit code is 1 if one is missing.
    Recipients,
    /// Encrypt the values to this host with the key of a recovery recipient. For a host whose
    /// identity is missing, or is not the one to which they are encrypted.
    Recover {
        /// The file with the secret key (AGE-SECRET-KEY-1…), as `age-keygen` writes it.
        #[arg(long)]
        key: PathBuf,
    },
}
