//! The units of the fake host. Of a unit file it knows `[Install]`, `Type=oneshot`,
//! `RemainAfterExit=yes`, and the program `/bin/false`.

use halite_minion::host::effect::UnitAction;
use halite_minion::host::{HostError, HostResult, UnitState, is_installable};

use crate::host::FakeState;

/// Directories of unit files, the one with the highest rank first.
const UNIT_DIRECTORIES: [&str; 3] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
];

fn refuse<T>(reason: String) -> HostResult<T> {
    Err(HostError::refused(reason))
}

impl FakeState {
    /// systemd notices changed unit files and drop-ins of units that it has loaded. It forgets a
    /// unit that does not run when its last file is removed.
    pub(crate) fn unit_file_changed(&mut self, path: &str) {
        let Some((_, rest)) = path.split_once("/systemd/system/") else {
            return;
        };
        if let Some(unit) = self.units.get(rest)
            && unit.active == "inactive"
            && unit.load == "loaded"
            && self.disk.stat(path).is_none()
            && self.unit_file(rest).is_none()
        {
            self.units.remove(rest);
            return;
        }
        let name = rest.split('/').next().unwrap_or_default();
        let name = name.strip_suffix(".d").unwrap_or(name);
        if let Some(unit) = self.units.get_mut(name) {
            unit.needs_reload = true;
        }
    }

    /// The text of a unit's file.
    fn unit_file(&self, name: &str) -> Option<String> {
        let content = UNIT_DIRECTORIES
            .iter()
            .find_map(|directory| self.disk.read(&format!("{directory}/{name}")))?;
        Some(String::from_utf8_lossy(content).into_owned())
    }

    pub(crate) fn unit_state(&self, name: &str) -> UnitState {
        if let Some(state) = self.units.get(name) {
            return state.clone();
        }
        let (load, file) = match self.unit_file(name) {
            Some(text) if is_installable(text.as_bytes()) => ("loaded", "disabled"),
            Some(_) => ("loaded", "static"),
            None => ("not-found", ""),
        };
        UnitState {
            load: load.into(),
            active: "inactive".into(),
            file: file.into(),
            needs_reload: false,
        }
    }

    /// The end of a start: the unit's state, or the refusal of the job.
    fn started(&self, name: &str, verb: &str) -> HostResult<&'static str> {
        let text = self.unit_file(name).unwrap_or_default();
        let has = |wanted: &str| text.lines().any(|line| line.trim() == wanted);
        let (is_oneshot, fails) = (has("Type=oneshot"), has("ExecStart=/bin/false"));
        if self.failing.contains(name) || (is_oneshot && fails) {
            return refuse(format!(
                "{name}: systemd's job to {verb} it ended with `failed`; see `systemctl status {name}` and \
                 `journalctl -u {name}`"
            ));
        }
        Ok(if self.dying.contains(name) || fails {
            "failed"
        } else if is_oneshot && !has("RemainAfterExit=yes") {
            "inactive"
        } else {
            "active"
        })
    }

    pub(crate) fn change_unit(&mut self, name: &str, action: UnitAction) -> HostResult<()> {
        let mut state = self.unit_state(name);
        let starting = matches!(
            action,
            UnitAction::Start | UnitAction::Restart | UnitAction::Reload
        );
        if state.load == "not-found"
            && !matches!(
                action,
                UnitAction::Mask | UnitAction::Unmask | UnitAction::Stop
            )
        {
            return refuse(format!("{name}: Unit {name} not found."));
        }
        if state.load == "masked" && (starting || action == UnitAction::Enable) {
            return refuse(format!("{name}: Unit {name} is masked."));
        }
        self.disk.tick()?;
        match action {
            UnitAction::Start if state.active == "active" => {}
            UnitAction::Start | UnitAction::Restart => {
                let verb = if action == UnitAction::Start {
                    "start"
                } else {
                    "restart"
                };
                match self.started(name, verb) {
                    Ok(active) => state.active = active.into(),
                    Err(refused) => {
                        state.active = "failed".into();
                        self.units.insert(name.to_owned(), state);
                        return Err(refused);
                    }
                }
                *self.starts.entry(name.to_owned()).or_default() += 1;
            }
            UnitAction::Stop => state.active = "inactive".into(),
            UnitAction::Reload => {
                if state.active != "active" {
                    return refuse(format!("{name} is not active, cannot reload."));
                }
            }
            UnitAction::Verify if state.active == "active" => {}
            UnitAction::Verify => {
                return refuse(format!(
                    "{name}: systemd started it, and now it is `{}`; see `systemctl status {name}` and \
                     `journalctl -u {name}`",
                    state.active
                ));
            }
            UnitAction::Enable => state.file = "enabled".into(),
            UnitAction::Disable => state.file = "disabled".into(),
            UnitAction::Mask => {
                state.file = "masked".into();
                state.load = "masked".into();
            }
            UnitAction::Unmask => {
                if state.file == "masked" {
                    state.file = "disabled".into();
                    state.load = "loaded".into();
                }
            }
        }
        self.units.insert(name.to_owned(), state);
        Ok(())
    }
}
