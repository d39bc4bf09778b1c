//! The operator's command: parse, call, show.

mod bootstrap;
mod cli;
mod client;
mod commands;
mod compile;
mod files;
mod follow;
mod minion;
mod output;
mod paper;
mod preflight;
mod site;

use std::process::ExitCode;

use clap::Parser as _;

use crate::output::Screen;

/// Something failed, or was found to be wrong.
pub const FAILED: u8 = 1;
/// `--exit-code`: something would change.
pub const WOULD_CHANGE: u8 = 2;
/// The command line makes no sense (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // Nothing is left to be said when even this cannot be printed.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    halite_proto::transport::install_crypto();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ctl: cannot start: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let mut screen = Screen::new(cli.global.output);
    let result = runtime.block_on(commands::run(cli, &mut screen));
    screen.clear();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ctl: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
