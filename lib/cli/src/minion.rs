//! The command line of the minion.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::duration::duration;

/// Default path of the configuration.
pub const DEFAULT_PATH: &str = "/etc/halite/minion.yaml";

/// The agent on every managed host.
#[derive(Debug, Parser)]
#[command(
    name = "halite-minion",
    version,
    after_help = "Examples:\n  \
        halite-minion enrol --master 10.0.0.11:4550 --token TOKEN\n  \
        halite-minion grains"
)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A command of the minion.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Keep the link to the master and carry out its jobs.
    #[command(after_help = "Examples:\n  \
        halite-minion run\n  \
        halite-minion run --config /srv/halite/minion.yaml")]
    Run {
        /// The configuration file.
        #[arg(long, default_value = DEFAULT_PATH)]
        config: PathBuf,
    },
    /// Enrol this host: make a key and get a certificate for it.
    #[command(after_help = "Examples:\n  \
        halite-minion enrol --master 10.0.0.11:4550 --token TOKEN\n  \
        halite-minion enrol --master 10.0.0.11:4550 --ca-hash HASH --id worker-2")]
    Enrol {
        /// The address of the master, HOST:PORT.
        #[arg(long)]
        master: String,
        /// The token that `ctl token create` printed. Without one, an operator must accept the key.
        #[arg(
            long,
            env = "HALITE_TOKEN",
            hide_env_values = true,
            default_value = "",
            hide_default_value = true
        )]
        token: String,
        /// The SHA-256 hash of the cluster's CA certificate, for enrolment without a token.
        #[arg(long, default_value = "", hide_default_value = true)]
        ca_hash: String,
        /// This host's id; default: its name.
        #[arg(long, default_value = "", hide_default_value = true)]
        id: String,
        /// Enrol again even if this host has an identity.
        #[arg(long)]
        force: bool,
        /// The configuration file; only its `state_dir` is used here.
        #[arg(long, default_value = DEFAULT_PATH)]
        config: PathBuf,
    },
    /// Apply a low state from a file, without a master.
    #[command(after_help = "Examples:\n  \
        halite-minion apply --low low.json --test\n  \
        halite-minion apply --low - --blobs blobs")]
    Apply {
        /// Predict only; change nothing.
        #[arg(long)]
        test: bool,
        /// The low state, as JSON; `-` reads standard input.
        #[arg(long)]
        low: PathBuf,
        /// The directory of the files that the low state refers to, each named by its SHA-256.
        #[arg(long)]
        blobs: Option<PathBuf>,
        /// The format of the output.
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Print this host's grains as JSON.
    #[command(after_help = "Examples:\n  \
        halite-minion grains\n  \
        halite-minion grains | jq .os")]
    Grains,
    /// Restart the minion with its new program, and restore this program if the new one does not
    /// reach the master.
    #[command(after_help = "Examples:\n  \
        halite-minion update\n  \
        halite-minion update --timeout 5m")]
    Update {
        /// The time within which the new program must reach the master, for example 30s or 5m.
        #[arg(long, default_value = "1m", value_name = "TIME", value_parser = duration)]
        timeout: Duration,
    },
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_an_update_has_a_unit() {
        let timeout = |words: &[&str]| {
            let words = [&["halite-minion", "update"], words].concat();
            match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
                Ok(Command::Update { timeout }) => Ok(timeout),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        assert_eq!(timeout(&[]), Ok(Duration::from_mins(1)));
        assert_eq!(timeout(&["--timeout", "30s"]), Ok(Duration::from_secs(30)));
        assert_eq!(timeout(&["--timeout", "5m"]), Ok(Duration::from_mins(5)));
        let error = timeout(&["--timeout", "60"]).unwrap_err();
        assert!(error.contains("a time with its unit"), "{error}");
    }
}
