//! The commands of `halite-builder`.

mod needs;
mod recipe;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use halite_cli::builder::Builder;
use halite_terminal::{Format, Screen};

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
    /// The commands that `ctl bundle` has too.
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
