//! The command line of bundles: `ctl bundle`, and the options of whatever reads or signs one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use halite_cli::builder::{Builder, Signing};

/// Whom a bundle is believed.
#[derive(Debug, Default, Args)]
pub struct TrustArgs {
    /// The public key of who builds the bundles, or a directory of such keys; default:
    /// /etc/halite/trust.
    #[arg(long)]
    pub trust: Option<PathBuf>,
    /// Believe a bundle that no trusted key signed: only damage is found then, not intent.
    #[arg(long)]
    pub allow_unsigned: bool,
}

/// `ctl bundle use`.
#[derive(Debug, Args)]
pub struct Switch {
    /// Its version; `ctl bundle list` shows those that are there.
    pub version: String,
    /// Take one that was built before the one in use.
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Check, and show what changes; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// `ctl bundle`.
#[derive(Debug, Subcommand)]
pub enum Bundle {
    /// Put a bundle beside those that this site has; which one its cluster uses stays the same.
    Add {
        /// Its ISO; or its directory, mounted or extracted, which is not copied and has to stay
        /// where it is.
        bundle: PathBuf,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// The bundles of this site.
    List,
    /// Let the cluster use another bundle of this site, one with the same Kubernetes; `ctl
    /// highstate` carries it out.
    Use(Switch),
    /// Take a bundle away that is not in use. Of one that was not copied only the record goes.
    Remove {
        /// Its version.
        version: String,
        /// Also when hosts still have what it gave them, or nobody knows.
        #[arg(long)]
        force: bool,
    },
    /// Copy a bundle from hosts that serve it: what `registry` hosts do by themselves at every
    /// highstate.
    Copy(Copy),
    /// What is in a bundle.
    Show {
        /// Its ISO or directory, or its version on this site; default: the directory above this
        /// program, or the bundle in use.
        bundle: Option<PathBuf>,
    },
    /// Check who signed an ISO or a directory, and every byte of it; name all that is not as it was
    /// made.
    Verify {
        /// The ISO or the directory; default: the directory above this program.
        bundle: Option<PathBuf>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// What changes from one bundle to another: versions, images, packages, states, sizes. Neither
    /// is checked.
    Diff {
        /// The ISO or directory of the old one.
        old: PathBuf,
        /// The ISO or directory of the new one.
        new: PathBuf,
    },
    /// Write what a site that has one bundle lacks of another as one sealed, signed ISO: a delta,
    /// for `ctl bundle add`.
    Export {
        /// The ISO or directory of the bundle that the site has; only its manifest is read.
        #[arg(long)]
        since: PathBuf,
        /// The ISO or directory of the new bundle. It is checked, and must be signed by somebody
        /// that is trusted here.
        new: PathBuf,
        /// The delta.
        #[arg(long)]
        out: PathBuf,
        #[command(flatten)]
        signing: Signing,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Make a key pair that signs ISOs: FILE, and the public key beside it with the suffix .pub.
    Key {
        /// The secret key's file.
        file: PathBuf,
        /// A file with the new key's password; default: it is asked for.
        #[arg(long)]
        password_file: Option<PathBuf>,
        /// No password: for a machine that builds without people.
        #[arg(long, conflicts_with = "password_file")]
        unencrypted: bool,
        /// The last day on which sites trust it.
        #[arg(long)]
        not_after: Option<jiff::civil::Date>,
    },
    /// Write the bundle in a directory into one sealed, signed ISO.
    Pack {
        /// Its directory.
        directory: PathBuf,
        /// The ISO.
        #[arg(long)]
        out: PathBuf,
        #[command(flatten)]
        signing: Signing,
    },
    /// The commands that `halite-builder` runs.
    #[command(flatten)]
    Builder(Builder),
}

/// `ctl bundle copy`.
#[derive(Debug, Args)]
pub struct Copy {
    /// Its directory on another host, as an address; may be repeated, and the next one is asked
    /// where one fails.
    #[arg(long, required_unless_present = "check")]
    pub from: Vec<String>,
    /// The authority that signed the servers' certificates (PEM); default: those that this host
    /// trusts.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// The SHA-256 of its manifest.json, which knows that of every other file.
    #[arg(long)]
    pub manifest_sha256: String,
    /// Its directory here; the last part of the path is its version.
    #[arg(long)]
    pub to: PathBuf,
    /// Only say whether it is there: its manifest, and each file with its size.
    #[arg(long)]
    pub check: bool,
}
