//! The command line of `ctl bundle`, and the options of all commands that verify a bundle.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use halite_cli::builder::{Builder, Signing};
use halite_names::BundleVersion;

/// The keys whose signatures are accepted.
#[derive(Debug, Default, Args)]
pub struct TrustArgs {
    /// The public key of the builder of the bundles, or a directory of such keys; default:
    /// /etc/halite/trust.
    #[arg(long)]
    pub trust: Option<PathBuf>,
    /// Accept a bundle that no trusted key signed. This detects only damage, not manipulation.
    #[arg(long)]
    pub allow_unsigned: bool,
}

/// `ctl bundle use`.
#[derive(Debug, Args)]
pub struct Switch {
    /// The bundle's version; `ctl bundle list` shows the versions of this site.
    pub version: BundleVersion,
    /// Accept a bundle that is older than the one in use.
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Check the bundle and show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// `ctl bundle`.
#[derive(Debug, Subcommand)]
pub enum Bundle {
    /// Add a bundle to this site. The cluster keeps using the current one.
    Add {
        /// The bundle's ISO; or its directory, mounted or extracted, which is not copied and must
        /// stay where it is.
        bundle: PathBuf,
        #[command(flatten)]
        trust: TrustArgs,
        /// Verify the bundle and show what would happen; change nothing.
        #[arg(long)]
        test: bool,
    },
    /// List the bundles of this site.
    List,
    /// Select another bundle of this site, with the same Kubernetes version, for the cluster. The
    /// next `ctl highstate` applies it.
    Use(Switch),
    /// Remove a bundle that is not in use. For a directory that was not copied, only the link is
    /// removed.
    Remove {
        /// The bundle's version.
        version: BundleVersion,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
        /// Check that nothing uses the bundle; change nothing.
        #[arg(long)]
        test: bool,
        /// Remove it even if hosts use it, or if it is unknown whether they do.
        #[arg(long)]
        force: bool,
    },
    /// Copy a bundle from hosts that serve it. Hosts with the role `registry` do this at every
    /// highstate.
    Copy(Copy),
    /// Show the content of a bundle.
    Show {
        /// The bundle's ISO or directory, or its version on this site; default: the bundle that
        /// contains this program, or else the one in use.
        bundle: Option<PathBuf>,
    },
    /// Verify the signature and every file of an ISO or a directory, and report all damage.
    Verify {
        /// The ISO or the directory; default: the bundle that contains this program, or else the
        /// one in use.
        bundle: Option<PathBuf>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Show the changes from one bundle to another: versions, images, packages, states, sizes.
    /// Neither is verified.
    Diff {
        /// The ISO or directory of the old bundle.
        old: PathBuf,
        /// The ISO or directory of the new bundle.
        new: PathBuf,
    },
    /// Write a delta: a signed ISO with only those files of a new bundle that an old one lacks. A
    /// site that has the old bundle adds it with `ctl bundle add`.
    Export {
        /// The ISO or directory of the bundle that the site has; only its manifest is read.
        #[arg(long)]
        since: PathBuf,
        /// The ISO or directory of the new bundle. It is verified, and must be signed by a key that
        /// is trusted here.
        new: PathBuf,
        /// The file of the delta.
        #[arg(long)]
        out: PathBuf,
        #[command(flatten)]
        signing: Signing,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Make a key pair that signs ISOs: FILE, and the public key in the same directory with the
    /// suffix .pub.
    Key {
        /// The secret key's file.
        file: PathBuf,
        /// A file with the new key's password; default: ask for it.
        #[arg(long)]
        password_file: Option<PathBuf>,
        /// Do not encrypt the key: for a machine that builds unattended.
        #[arg(long, conflicts_with = "password_file")]
        unencrypted: bool,
        /// The last day on which sites trust the key.
        #[arg(long)]
        not_after: Option<jiff::civil::Date>,
    },
    /// Write the bundle in a directory as one signed ISO.
    Pack {
        /// The bundle's directory.
        directory: PathBuf,
        /// The file of the ISO.
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
    /// The URL of the bundle's directory on another host; may be repeated: if one fails, the next
    /// is tried.
    #[arg(long, required_unless_present = "check")]
    pub from: Vec<String>,
    /// The CA that signed the servers' certificates (PEM); default: those that this host trusts.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// The SHA-256 of the bundle's manifest.json, which has the digests of all other files.
    #[arg(long)]
    pub manifest_sha256: String,
    /// The bundle's directory on this host; the last part of the path is its version.
    #[arg(long)]
    pub to: PathBuf,
    /// Only check that the bundle exists: its manifest, and each file with its size.
    #[arg(long)]
    pub check: bool,
}
