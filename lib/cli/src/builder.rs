//! The command line of `halite-builder`, which is also part of `ctl bundle`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::output::Format;

/// Makes bundles, on a machine with internet access; `ctl bundle` runs it.
#[derive(Debug, Parser)]
#[command(
    name = "halite-builder",
    version,
    disable_help_subcommand = true,
    after_help = "Examples:\n  \
        halite-builder init site\n  \
        halite-builder build --out halite.iso --key builder.key"
)]
pub struct Cli {
    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    pub output: Format,
    /// The command to run.
    #[command(subcommand)]
    pub command: BuilderCommand,
}

/// The commands of `halite-builder`.
#[derive(Debug, Subcommand)]
pub enum BuilderCommand {
    /// The commands that `ctl bundle` also has.
    #[command(flatten)]
    Shared(Builder),
    /// Lists the unmet requirements of a bundle as JSON, for `ctl bundle verify`.
    #[command(hide = true)]
    Missing {
        /// The directory of the bundle.
        directory: PathBuf,
    },
}

/// The keys that sign an ISO.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Signing {
    /// The secret key that signs the ISO; may be repeated.
    #[arg(long)]
    pub key: Vec<PathBuf>,
    /// A file with the password of the keys; default: ask for it.
    #[arg(long)]
    pub password_file: Option<PathBuf>,
    /// Do not sign the ISO. Sites accept it only with --allow-unsigned.
    #[arg(long, conflicts_with = "key")]
    pub unsigned: bool,
}

/// The commands of the builder that `ctl bundle` also has. There, other examples replace these.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Builder {
    /// List what clusters may request from a bundle and which state requests it, what is missing,
    /// and what is never requested.
    #[command(after_help = "Examples:\n  \
        halite-builder needs bundle/\n  \
        halite-builder needs bundle/ -o json")]
    Needs {
        /// The directory of the bundle; default: the directory above this program.
        directory: Option<PathBuf>,
    },
    /// Write a recipe to edit: everything that a cluster needs, from its official sources.
    #[command(after_help = "Examples:\n  \
        halite-builder init\n  \
        halite-builder init site --kubernetes v1.36.3")]
    Init {
        /// Directory for the new recipe.yaml.
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Kubernetes' version.
        #[arg(long, default_value = "v1.36.3")]
        kubernetes: String,
        /// Directory of ctl, halite-master and halite-minion; default: this program's directory, or
        /// /usr/lib/halite.
        #[arg(long)]
        programs: Option<PathBuf>,
        /// The state tree; default: the one shipped with this program.
        #[arg(long)]
        states: Option<PathBuf>,
    },
    /// Record in a lock file beside the recipe what its items resolve to: sources, digests, sizes,
    /// licences. Existing entries stay unchanged.
    #[command(after_help = "Examples:\n  \
        halite-builder lock\n  \
        halite-builder lock --recipe site/recipe.yaml")]
    Lock {
        /// The recipe.
        #[arg(long, default_value = "recipe.yaml")]
        recipe: PathBuf,
    },
    /// Resolve everything in a recipe again, show what changes, and record it.
    #[command(after_help = "Examples:\n  \
        halite-builder update --test\n  \
        halite-builder update --recipe site/recipe.yaml")]
    Update {
        /// The recipe.
        #[arg(long, default_value = "recipe.yaml")]
        recipe: PathBuf,
        /// Only show what would change.
        #[arg(long)]
        test: bool,
    },
    /// Build a bundle from its lock file; for an ISO, also seal and sign it.
    #[command(after_help = "Examples:\n  \
        halite-builder build --out halite.iso --key builder.key\n  \
        halite-builder build --out bundle/ --offline")]
    Build {
        /// The recipe.
        #[arg(long, default_value = "recipe.yaml")]
        recipe: PathBuf,
        /// The new bundle: NAME.iso, or a directory, which is not signed.
        #[arg(long)]
        out: PathBuf,
        /// The keys that sign an ISO.
        #[command(flatten)]
        signing: Signing,
        /// Work offline: use only the recipe's cache.
        #[arg(long)]
        offline: bool,
    },
}

impl Signing {
    fn arguments(&self) -> Vec<OsString> {
        let mut all = Vec::new();
        for key in &self.key {
            all.extend(option("--key", key));
        }
        if let Some(file) = &self.password_file {
            all.extend(option("--password-file", file));
        }
        if self.unsigned {
            all.push("--unsigned".into());
        }
        all
    }
}

impl Builder {
    /// The arguments of `halite-builder` that select this command.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        match self {
            Self::Needs { directory } => {
                all.push("needs".into());
                if let Some(directory) = directory {
                    all.extend([OsString::from("--"), directory.into()]);
                }
            }
            Self::Init {
                directory,
                kubernetes,
                programs,
                states,
            } => {
                all.push("init".into());
                all.extend(option("--kubernetes", kubernetes));
                if let Some(programs) = programs {
                    all.extend(option("--programs", programs));
                }
                if let Some(states) = states {
                    all.extend(option("--states", states));
                }
                all.extend([OsString::from("--"), directory.into()]);
            }
            Self::Lock { recipe } => {
                all.push("lock".into());
                all.extend(option("--recipe", recipe));
            }
            Self::Update { recipe, test } => {
                all.push("update".into());
                all.extend(option("--recipe", recipe));
                if *test {
                    all.push("--test".into());
                }
            }
            Self::Build {
                recipe,
                out,
                signing,
                offline,
            } => {
                all.push("build".into());
                all.extend(option("--recipe", recipe));
                all.extend(option("--out", out));
                all.extend(signing.arguments());
                if *offline {
                    all.push("--offline".into());
                }
            }
        }
        all
    }
}

/// `NAME=VALUE`, so that a value that begins with a hyphen is not read as an option.
fn option(name: &str, value: impl Into<OsString>) -> [OsString; 1] {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(value.into());
    [text]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[OsString]) -> Builder {
        let all = std::iter::once(OsString::from("halite-builder")).chain(arguments.to_vec());
        match Cli::try_parse_from(all).unwrap().command {
            BuilderCommand::Shared(command) => command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_read_back() {
        for line in [
            "needs",
            "needs -- -dir",
            "init",
            "init --kubernetes v1.35.0 --programs bin --states tree site",
            "lock --recipe r.yaml",
            "update --test",
            "build --out=-x.iso --key a --key b --password-file p --offline",
            "build --out directory --unsigned",
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let command = parse(&arguments);
            assert_eq!(parse(&command.arguments()), command, "{line}");
        }
    }
}
