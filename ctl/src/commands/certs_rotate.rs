//! `ctl certs rotate`.

use clap::ValueEnum as _;
use halite_proto::v1;
use halite_states::shipped;
use serde_json::json;

use crate::FAILED;
use crate::cli::{CertsRotate, Global, RotatedKeys};
use crate::commands::again::CommandLine;
use crate::confirm::confirmed;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::Screen;

/// The rotation of some keys.
struct Rotation {
    /// The orchestration.
    sls: &'static str,
    /// The keys with their article.
    keys: &'static str,
    /// A sentence with the effects on the cluster.
    effects: &'static str,
}

impl Rotation {
    fn of(keys: RotatedKeys) -> Self {
        match keys {
            RotatedKeys::Encryption => Self {
                sls: shipped::ROTATE_ENCRYPTION,
                keys: "the key that encrypts Secrets in etcd",
                effects: "Each API server restarts three times, one after the other.",
            },
        }
    }

    fn question(&self) -> String {
        format!("Rotate {}? {}", self.keys, self.effects)
    }
}

/// Runs `ctl certs rotate`.
///
/// # Errors
/// The master does not answer or refuses, or the rotation cannot be confirmed.
pub async fn rotate(
    global: &Global,
    args: &CertsRotate,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let rotation = Rotation::of(args.what);
    if !confirmed(&rotation.question(), args.yes || args.test, screen)? {
        return Ok(FAILED);
    }
    let request = v1::OrchestrateRequest {
        sls: rotation.sls.to_owned(),
        pillar_json: json!({}).to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let again = again(args).text();
    let done = run_orchestration(global, request, &word(args.what), screen).await?;
    let success = format!("{} is rotated", rotation.keys);
    print_outcome(&done, success_of(&success, args.test), &again, screen)
}

/// The keys as the command line names them.
fn word(keys: RotatedKeys) -> String {
    let value = keys.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The command with the same words.
fn again(args: &CertsRotate) -> CommandLine {
    CommandLine::new(format!("ctl certs rotate {}", word(args.what)))
        .flag(args.yes, "yes")
        .flag(args.test, "test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Certs, Cli, Command};

    #[test]
    fn each_kind_of_key_has_its_shipped_orchestration_and_its_question() {
        for keys in RotatedKeys::value_variants() {
            let rotation = Rotation::of(*keys);
            assert!(shipped::ORCHESTRATIONS.contains(&rotation.sls));
        }
        assert_eq!(
            Rotation::of(RotatedKeys::Encryption).question(),
            "Rotate the key that encrypts Secrets in etcd? Each API server restarts three times, one after the other."
        );
    }

    #[test]
    fn the_words_to_repeat_a_rotation_are_the_same() {
        for words in ["encryption", "encryption --yes", "encryption --test"] {
            let line = format!("ctl certs rotate {words}");
            let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            let Command::Certs(Certs::Rotate(args)) = cli.command else {
                panic!("another command");
            };
            assert_eq!(again(&args).text(), line);
        }
        for wrong in ["ctl certs rotate", "ctl certs rotate all"] {
            assert!(<Cli as clap::Parser>::try_parse_from(wrong.split(' ')).is_err());
        }
    }
}
