//! The commands of `halite-builder`.

mod needs;
mod recipe;

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use halite_cli::builder::Builder;
use halite_pillar::option_sets::Coverage;
use halite_terminal::{Format, Screen};

/// The variable that chooses the sets of options for which the state tree is compiled. It is for
/// the project's own tests: operators always get all pairs.
const OPTION_SETS: &str = "HALITE_OPTION_SETS";

/// Makes bundles, on a machine with internet access; `ctl bundle` runs it.
#[derive(Debug, Parser)]
#[command(name = "halite-builder", version, disable_help_subcommand = true)]
pub struct Cli {
    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    pub output: Format,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `halite-builder`.
#[derive(Debug, Subcommand)]
pub enum Command {
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

/// Runs a command and returns the exit code.
///
/// # Errors
/// The errors of the command.
pub fn run(command: Command, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Command::Missing { directory } => needs::missing(&directory),
        Command::Shared(Builder::Needs { directory }) => {
            let directory = directory.context("name the directory of a bundle")?;
            needs::needs(&directory, screen)
        }
        Command::Shared(Builder::Init {
            directory,
            kubernetes,
            programs,
            states,
        }) => recipe::init(&directory, kubernetes, programs, states, screen),
        Command::Shared(Builder::Lock { recipe }) => recipe::lock(&recipe, screen),
        Command::Shared(Builder::Update { recipe, test }) => recipe::update(&recipe, test, screen),
        Command::Shared(Builder::Build {
            recipe,
            out,
            signing,
            offline,
        }) => recipe::build(&recipe, &out, offline, &signing, screen),
    }
}

/// The sets of options that the environment chooses.
fn coverage() -> anyhow::Result<Coverage> {
    chosen(std::env::var_os(OPTION_SETS).as_deref())
}

fn chosen(name: Option<&OsStr>) -> anyhow::Result<Coverage> {
    let Some(name) = name else {
        return Ok(Coverage::default());
    };
    match name.to_str() {
        Some("pairs") => Ok(Coverage::Pairs),
        Some("covering") => Ok(Coverage::Covering),
        _ => bail!(
            "cannot use {OPTION_SETS}={}: it is neither pairs nor covering; unset the variable",
            name.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_have_all_pairs_and_a_misspelt_choice_is_refused() {
        let of = |name: &str| chosen(Some(OsStr::new(name)));
        assert_eq!(chosen(None).unwrap(), Coverage::Pairs);
        assert_eq!(of("pairs").unwrap(), Coverage::Pairs);
        assert_eq!(of("covering").unwrap(), Coverage::Covering);
        for wrong in ["", "Covering", "all"] {
            let error = of(wrong).unwrap_err().to_string();
            let wanted = format!("cannot use HALITE_OPTION_SETS={wrong}: ");
            assert!(error.starts_with(&wanted), "{error}");
        }
    }
}
