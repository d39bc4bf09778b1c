//! `ctl bundle`: one module for each command.

mod add;
mod builder;
mod copy;
mod diff;
mod export;
mod hosts;
mod key;
mod list;
mod pack;
mod problems;
mod remove;
mod show;
mod signing;
mod switch;
mod verify;

use std::path::{Path, PathBuf};

use halite_cli::builder::Builder;

use self::remove::How;
use crate::cli::{Bundle, Global};
use crate::output::Screen;
use crate::site::Site;

/// Runs `ctl bundle` and returns the exit code.
///
/// # Errors
/// The command failed.
pub async fn run(global: &Global, command: Bundle, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Bundle::Add {
            bundle,
            trust,
            test,
        } => add::add(&Site::here(), &bundle, &trust, test, screen),
        Bundle::List => list::list(&Site::here(), global, screen).await,
        Bundle::Use(args) => switch::switch(&Site::here(), &args, screen),
        Bundle::Remove {
            version,
            yes,
            test,
            force,
        } => {
            let how = How { yes, test, force };
            remove::remove(&Site::here(), global, &version, how, screen).await
        }
        Bundle::Copy(args) => copy::run(&args, screen),
        Bundle::Show { bundle } => show::show(&Site::here(), bundle, screen),
        Bundle::Verify {
            bundle: Some(file),
            trust,
        } if is_image(&file) => verify::image(&Site::here(), &file, &trust, screen),
        Bundle::Verify { bundle, trust } => verify::directory(
            &Site::here(),
            &Site::here().bundle_directory(bundle)?,
            &trust,
            screen,
        ),
        Bundle::Diff { old, new } => diff::diff(&old, &new, screen),
        Bundle::Export {
            since,
            new,
            out,
            signing,
            trust,
        } => export::export(
            &Site::here(),
            [&since, &new, &out],
            &signing,
            &trust,
            screen,
        ),
        Bundle::Key {
            file,
            password_file,
            unencrypted,
            not_after,
        } => key::key(
            &file,
            password_file.as_deref(),
            unencrypted,
            not_after,
            screen,
        ),
        Bundle::Pack {
            directory,
            out,
            signing,
        } => pack::pack(&directory, &out, &signing, screen),
        Bundle::Builder(Builder::Needs { directory }) => {
            let directory = Some(Site::here().bundle_directory(directory)?);
            builder::run(global.output, Builder::Needs { directory })
        }
        Bundle::Builder(command) => builder::run(global.output, command),
    }
}

/// Runs `ctl images`.
///
/// # Errors
/// The bundle cannot be read.
pub fn images(bundle: Option<PathBuf>, screen: &mut Screen) -> anyhow::Result<u8> {
    show::images(&Site::here(), bundle, screen)
}

/// Returns true if a bundle is an image: a file, or a disc or USB stick that contains one.
fn is_image(path: &Path) -> bool {
    path.exists() && !path.is_dir()
}

#[cfg(test)]
mod tests;
