//! The commands of `halite-builder`.

mod needs;
mod recipe;

use std::ffi::OsStr;

use anyhow::{Context as _, bail};
use halite_cli::builder::{Builder, BuilderCommand};
use halite_pillar::option_sets::Coverage;
use halite_terminal::Screen;

/// The variable that chooses the sets of options for which the state tree is compiled. It is for
/// the project's own tests: operators always get all pairs.
const OPTION_SETS: &str = "HALITE_OPTION_SETS";

/// Runs a command and returns the exit code.
///
/// # Errors
/// The errors of the command.
pub fn run(command: BuilderCommand, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        BuilderCommand::Missing { directory } => needs::missing(&directory),
        BuilderCommand::Shared(Builder::Needs { directory }) => {
            let directory = directory.context("name the directory of a bundle")?;
            needs::needs(&directory, screen)
        }
        BuilderCommand::Shared(Builder::Init {
            directory,
            kubernetes,
            programs,
            states,
        }) => recipe::init(&directory, kubernetes, programs, states, screen),
        BuilderCommand::Shared(Builder::Lock { recipe }) => recipe::lock(&recipe, screen),
        BuilderCommand::Shared(Builder::Update { recipe, test }) => {
            recipe::update(&recipe, test, screen)
        }
        BuilderCommand::Shared(Builder::Build {
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
