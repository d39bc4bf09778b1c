//! The effects that restart a service, for which a host needs its turn.

use crate::host::effect::{Effect, UnitAction};
use crate::modules;

/// The start of a command that restarts a unit.
const RESTART: &str = "systemctl restart ";
/// The start of the names of Halite's own units, whose restart disturbs no workload.
const OWN: &str = "halite-";

/// The service that an effect restarts. A start is not a restart: the service did not run. Longer
/// commands do not count: they repair a service that does not serve, which cannot wait.
pub(super) fn restarted(effect: &Effect) -> Option<String> {
    let unit = match effect {
        Effect::Unit {
            name,
            action: UnitAction::Restart,
        } => name.clone(),
        Effect::Run(command) => {
            let line = match command.argv.as_slice() {
                [_, flag, line] if flag == "-c" => line.clone(),
                words => words.join(" "),
            };
            let name = line.trim().strip_prefix(RESTART)?.trim();
            let is_name =
                !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == ';');
            is_name.then(|| modules::unit_name(name))?
        }
        _ => return None,
    };
    (unit.ends_with(".service") && !unit.starts_with(OWN)).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::effect::Command;

    fn unit(name: &str, action: UnitAction) -> Option<String> {
        let name = name.to_owned();
        restarted(&Effect::Unit { name, action })
    }

    fn run(words: &[&str]) -> Option<String> {
        restarted(&Effect::Run(Command {
            argv: words.iter().map(ToString::to_string).collect(),
            ..Command::default()
        }))
    }

    #[test]
    fn only_a_restart_of_a_service_that_is_not_halites_needs_a_turn() {
        let kubelet = Some("kubelet.service".to_owned());
        assert_eq!(unit("kubelet.service", UnitAction::Restart), kubelet);
        assert_eq!(unit("kubelet.service", UnitAction::Start), None);
        assert_eq!(unit("kubelet.service", UnitAction::Reload), None);
        assert_eq!(unit("backup.timer", UnitAction::Restart), None);
        assert_eq!(unit("halite-minion.service", UnitAction::Restart), None);
        assert_eq!(
            run(&["/bin/sh", "-c", "systemctl restart kubelet.service"]),
            kubelet
        );
        assert_eq!(
            run(&["/bin/sh", "-c", " systemctl restart kubelet\n"]),
            kubelet
        );
        assert_eq!(run(&["systemctl", "restart", "kubelet"]), kubelet);
        for line in [
            "systemctl daemon-reload",
            "echo systemctl restart kubelet",
            "systemctl restart ",
            "systemctl restart halite-minion.service",
            "systemctl restart containerd; true",
        ] {
            assert_eq!(run(&["/bin/sh", "-c", line]), None, "{line}");
        }
        assert_eq!(restarted(&Effect::DaemonReload), None);
    }
}
