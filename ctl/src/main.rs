//! `ctl`, the operator's command.
//!
//! Input: the command line, the operator's documents in `/etc/halite`, bundles, and the master's
//! answers. Output: one document on standard output (a table, JSON or YAML), progress on standard
//! error, and the exit code. `ctl` itself changes only bundles, backups and documents: hosts are
//! changed by the minion program, and the cluster by the master.

mod again;
mod backup_file;
mod bootstrap;
mod cli;
mod client;
mod commands;
mod compile;
mod complete;
mod confirm;
mod context;
#[cfg(test)]
mod contract_tests;
mod etcd_image;
mod event_line;
mod event_stream;
mod files;
mod finished_run;
mod generate;
mod identity;
mod identity_renewal;
mod job_watch;
#[cfg(test)]
mod local_contract_tests;
mod masters;
mod minion;
mod orchestration_watch;
#[cfg(test)]
mod outcome_contract_tests;
mod output;
mod paths;
mod preflight;
#[cfg(test)]
mod reply_contract_tests;
mod site;
mod ssh;
mod waiting;

use std::process::ExitCode;

use clap_complete::CompleteEnv;

use crate::output::Screen;

/// The exit code of a failure, and of a check that found something wrong.
pub const FAILED: u8 = 1;
/// The exit code with `--exit-code`, if something would change.
pub const WOULD_CHANGE: u8 = 2;
/// The exit code if the work is done, but a later step failed: repeating the command would repeat
/// the work.
pub const INCOMPLETE: u8 = 3;
/// The exit code of an invalid command line (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    // Does not return if a shell asks for completions.
    CompleteEnv::with_factory(|| complete::with_words(cli::command()))
        .var(complete::COMPLETE)
        .complete();
    let cli = match cli::Cli::parse_from_words(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            let words = std::env::args_os();
            let words: Vec<String> = words.map(|word| word.to_string_lossy().into()).collect();
            let error = cli::explain(error, &words);
            let code = if error.use_stderr() { USAGE } else { 0 };
            // If this cannot be printed, nothing can.
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
            halite_cli::output::report(&format!("ctl: cannot start: {error}"));
            return ExitCode::from(FAILED);
        }
    };
    let mut screen = Screen::new(cli.global.output);
    let result = runtime.block_on(commands::run(cli, &mut screen));
    screen.clear();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // The master quotes texts from hosts.
            screen.note(format!("ctl: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}
