//! Units of [`super::overlay`] that the host below does not have: those of predicted unit files,
//! and those that a predicted package or program may install.

use std::sync::atomic::Ordering;

use super::overlay::Overlay;
use super::{FileKind, Host as _, PackageManager, Stat, UnitState, is_installable};

/// The prefix of Halite's own units: files of its states, which are predicted. No package or
/// program installs such a unit.
const OWN_UNITS: &str = "halite-";

impl Overlay<'_> {
    /// The state of a unit that the host below does not have; unchanged if it stays unknown.
    pub(super) async fn predict_unit(&self, name: &str, state: &mut UnitState) {
        let path = format!("/etc/systemd/system/{name}");
        let own = self.stat(&path).await.ok().flatten();
        let may_come = self.uncertain() && !name.starts_with(OWN_UNITS);
        let file = match own {
            Some(stat) => self.file_state(&path, &stat).await,
            None if may_come => {
                self.assumed.store(true, Ordering::Relaxed);
                // Packages start nothing here, but Debian's enable their units.
                let installs = self.predicted().packages.values().any(Option::is_some);
                let is_apt = matches!(self.below.package_manager().await, Ok(PackageManager::Apt));
                if installs && is_apt {
                    "enabled"
                } else {
                    "disabled"
                }
            }
            None => return,
        };
        state.load = "loaded".into();
        state.active = "inactive".into();
        state.file = file.into();
    }

    /// The state of a unit file that was not enabled.
    async fn file_state(&self, path: &str, stat: &Stat) -> &'static str {
        if stat.kind != FileKind::File {
            return "disabled";
        }
        match self.read(path).await {
            Ok(Some(text)) if !is_installable(&text) => "static",
            _ => "disabled",
        }
    }
}
