//! The command line of `ctl secrets`.

use std::path::PathBuf;

use clap::Subcommand;

/// `ctl secrets`.
#[derive(Debug, Subcommand)]
pub enum Secrets {
    /// List the secrets: the hosts that get each, and the files with their values. No value is displayed.
    List,
    /// Edit the encrypted values in $VISUAL, $EDITOR or vi.
    ///
    /// The text has one `NAME: VALUE` for each secret that the cluster document names. It is in a
    /// memory file system while you edit it, never on a disk, and is encrypted and written only if
    /// it is valid. Otherwise the problems are displayed, and you can continue with the same text.
    Edit,
    /// Move the values from the cluster document into the encrypted file.
    ///
    /// Names, roles and nodes stay in the cluster document. A command that was interrupted is
    /// completed when it is repeated. The previous text may still be in older backups and in unused
    /// blocks of the disk: change the values if others may read those.
    Encrypt {
        /// Show what would be moved; change nothing.
        #[arg(long)]
        test: bool,
    },
    /// List those who can decrypt the values: the master's host, its standbys, and the recovery
    /// recipients, which are those of backups. The exit code is 1 if one is missing.
    Recipients,
    /// Encrypt the values to this host, whose identity is missing or another one, with the key of a
    /// recovery recipient.
    Recover {
        /// The file with the secret key (AGE-SECRET-KEY-1…), as `age-keygen` writes it.
        #[arg(long)]
        key: PathBuf,
    },
}
