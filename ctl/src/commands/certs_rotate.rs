//! `ctl certs rotate`.

use anyhow::bail;
use clap::ValueEnum as _;
use halite_proto::v1;
use halite_states::shipped;
use serde_json::{Value, json};

use crate::FAILED;
use crate::again::CommandLine;
use crate::cli::{CertsRotate, Global, RotatedKeys};
use crate::commands::secrets;
use crate::confirm::confirmed;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::Screen;

/// The rotation of some keys.
struct Rotation {
    /// The orchestration; `None` if the keys are on this host alone.
    sls: Option<&'static str>,
    /// The keys with their article.
    keys: &'static str,
    /// A sentence with the effects on the cluster.
    effects: &'static str,
    /// The same if the old one leaves at once; `None` where that is not possible.
    breaks: Option<&'static str>,
    /// `true` if pods depend on the keys.
    has_pods: bool,
}

/// The effects of the rotation of a CA.
const RESTARTS: &str =
    "The programs that use it restart three times, one control plane after the other.";

impl Rotation {
    fn of(keys: RotatedKeys) -> Self {
        let of_ca = |keys, breaks, has_pods| Self {
            sls: Some(shipped::ROTATE_CA),
            keys,
            effects: RESTARTS,
            breaks: Some(breaks),
            has_pods,
        };
        let of_own = |keys, effects, breaks| Self {
            effects,
            ..of_ca(keys, breaks, false)
        };
        match keys {
            RotatedKeys::Encryption => Self {
                sls: Some(shipped::ROTATE_ENCRYPTION),
                keys: "the key that encrypts Secrets in etcd",
                effects: "Each API server restarts three times, one after the other.",
                breaks: None,
                has_pods: false,
            },
            RotatedKeys::Kubernetes => of_ca(
                "the CA of Kubernetes",
                "Hosts do not reach the API until they have the new CA, pods not until they are restarted, and all kubeconfigs are refused.",
                true,
            ),
            RotatedKeys::Etcd => of_ca(
                "the CA of etcd",
                "etcd has no quorum, and the API does not serve, until all control planes have the new CA.",
                false,
            ),
            RotatedKeys::FrontProxy => of_ca(
                "the CA of the front proxy",
                "Aggregated API servers refuse requests until all control planes have the new CA.",
                false,
            ),
            RotatedKeys::Sa => of_ca(
                "the key that signs tokens of service accounts",
                "All tokens are refused: pods that use the API fail until they are restarted.",
                true,
            ),
            RotatedKeys::Halite => of_own(
                "the CA of identities",
                "Minions connect again three times. It waits until each host and each operator has a certificate of the new one. Note \
                 the new hash of the CA beside the key of the backups.",
                "Operators are refused, but root on control planes, and so are hosts that are off: create and enrol them again.",
            ),
            RotatedKeys::Site => of_own(
                "the CA of the site's servers",
                "The servers of bundles, the site registry and Prometheus metrics load their certificates again.",
                "Hosts fetch no image and no package until they and the servers have the new one.",
            ),
            RotatedKeys::Secrets => Self {
                sls: None,
                keys: "the identity that decrypts the values of secrets",
                effects: "Older files, as in backups, can then be decrypted only by standbys and recovery recipients.",
                breaks: None,
                has_pods: false,
            },
        }
    }

    /// The consequences, which an operator should know before the rotation.
    fn effects(&self, compromised: bool) -> &'static str {
        self.breaks.filter(|_| compromised).unwrap_or(self.effects)
    }

    fn question(&self, compromised: bool) -> String {
        format!("Rotate {}? {}", self.keys, self.effects(compromised))
    }

    /// Checks the options.
    fn check(&self, args: &CertsRotate) -> anyhow::Result<()> {
        if args.compromised && args.what == RotatedKeys::Secrets {
            bail!(
                "cannot rotate {} with --compromised: the previous one leaves at once in any case; omit the option, and change the values \
                 (`ctl secrets edit`)",
                self.keys
            );
        }
        if args.compromised && self.breaks.is_none() {
            bail!(
                "cannot rotate {} with --compromised: objects in etcd could not be decrypted; omit the option",
                self.keys
            );
        }
        if args.restart_pods && !self.has_pods {
            bail!(
                "cannot rotate {} with --restart-pods: no pod depends on it; omit the option",
                self.keys
            );
        }
        Ok(())
    }
}

/// The values for the orchestration. A run with the same values is joined.
fn values(args: &CertsRotate) -> Value {
    if args.what == RotatedKeys::Encryption {
        return json!({});
    }
    let mut values = json!({"ca": word(args.what)});
    for (name, is_set) in [
        ("compromised", args.compromised),
        ("restart_pods", args.restart_pods),
    ] {
        if is_set {
            values[name] = json!(true);
        }
    }
    values
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
    rotation.check(args)?;
    let is_asked = !args.yes && !args.test;
    if args.compromised && !is_asked {
        screen.note(rotation.effects(true));
    }
    if !confirmed(&rotation.question(args.compromised), !is_asked, screen)? {
        return Ok(FAILED);
    }
    let Some(sls) = rotation.sls else {
        return secrets::rotate(global, args.test, screen).await;
    };
    let request = v1::OrchestrateRequest {
        sls: sls.to_owned(),
        pillar_json: values(args).to_string(),
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
        .flag(args.compromised, "compromised")
        .flag(args.restart_pods, "restart-pods")
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
            match rotation.sls {
                Some(sls) => assert!(shipped::ORCHESTRATIONS.contains(&sls)),
                None => assert_eq!(*keys, RotatedKeys::Secrets),
            }
        }
        assert_eq!(
            Rotation::of(RotatedKeys::Encryption).question(false),
            "Rotate the key that encrypts Secrets in etcd? Each API server restarts three times, one after the other."
        );
    }

    fn parsed(line: &str) -> CertsRotate {
        let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
        let Command::Certs(Certs::Rotate(args)) = cli.command else {
            panic!("another command");
        };
        args
    }

    #[test]
    fn what_breaks_is_asked_and_options_without_effect_are_refused() {
        let asked = Rotation::of(RotatedKeys::Kubernetes);
        assert!(
            asked
                .question(false)
                .ends_with("one control plane after the other.")
        );
        assert!(
            asked
                .question(true)
                .ends_with("all kubeconfigs are refused.")
        );
        for (words, wanted) in [
            ("etcd --restart-pods", Some("no pod depends on it")),
            ("encryption --compromised", Some("could not be decrypted")),
            ("secrets --compromised", Some("change the values")),
            ("halite --restart-pods", Some("no pod depends on it")),
            ("site --compromised", None),
            ("sa --compromised --restart-pods", None),
        ] {
            let args = parsed(&format!("ctl certs rotate {words}"));
            let refused = Rotation::of(args.what).check(&args).err();
            let refused = refused.map(|error| error.to_string());
            match wanted {
                Some(wanted) => assert!(refused.unwrap().contains(wanted)),
                None => assert_eq!(refused, None),
            }
        }
    }

    #[test]
    fn the_orchestration_gets_the_ca_and_the_options_that_are_set() {
        let of = |words: &str| values(&parsed(&format!("ctl certs rotate {words}")));
        assert_eq!(of("encryption"), json!({}));
        assert_eq!(of("front-proxy --yes"), json!({"ca": "front-proxy"}));
        assert_eq!(of("halite"), json!({"ca": "halite"}));
        assert_eq!(
            of("kubernetes --compromised --restart-pods"),
            json!({"ca": "kubernetes", "compromised": true, "restart_pods": true})
        );
    }

    #[test]
    fn the_words_to_repeat_a_rotation_are_the_same() {
        for words in [
            "encryption",
            "encryption --yes",
            "encryption --test",
            "sa --compromised --restart-pods --yes",
        ] {
            let line = format!("ctl certs rotate {words}");
            assert_eq!(again(&parsed(&line)).text(), line);
        }
        for wrong in ["ctl certs rotate", "ctl certs rotate all"] {
            assert!(<Cli as clap::Parser>::try_parse_from(wrong.split(' ')).is_err());
        }
    }
}
