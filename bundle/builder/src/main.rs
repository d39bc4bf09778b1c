//! The program `halite-builder`: parses the command line, runs the command, shows the result.

mod program;

use std::process::ExitCode;

use clap::Parser as _;
use halite_cli::builder::Cli;
use halite_terminal::Screen;

/// A command failed, or found missing items.
const FAILED: u8 = 1;
/// The command line is invalid (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // If this cannot be printed, there is no way to report it.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut screen = Screen::new(cli.output);
    let result = program::run(cli.command, &mut screen);
    screen.clear();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            screen.note(format!("halite-builder: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}
