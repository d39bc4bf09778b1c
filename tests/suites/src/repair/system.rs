//! Damages of units, packages, kernel parameters and images.

use halite_lab::cluster::{BOOTSTRAP, WORKER};

use super::damage::{ObjectDamage, quote};
use super::low::{Low, LowStateEntry};

/// Packages whose absence does no harm for the moment.
const PACKAGES: &str = "socat ethtool";

/// Leaves a package in the state of a dpkg that lost its power after unpacking and before recording
/// it.
const CUT_OFF: &str = "sed -i '/^Package: socat$/{n;s/^Status: .*/Status: install reinstreq unpacked/}' /var/lib/dpkg/status \
                       && dpkg-query -W -f '${Status}' socat | grep -q reinstreq && dpkg --remove --force-depends ethtool";

/// Units that carry out the repair: they are disabled, not stopped.
const REPAIR_UNITS: [&str; 2] = ["halite-master", "halite-minion"];

/// Damages of units, each stopped on one host and disabled on the other.
pub fn units(low: &Low) -> Vec<ObjectDamage> {
    let mut damages = Vec::new();
    for (place, minion) in [BOOTSTRAP, WORKER].into_iter().enumerate() {
        for (number, state) in low
            .of(minion)
            .filter(|s| s.function == "service.running")
            .enumerate()
        {
            let unit = quote(&state.name);
            let probe = format!("systemctl is-active {unit}; systemctl is-enabled {unit}");
            let stays = REPAIR_UNITS.contains(&state.name.as_str());
            damages.push(if stays || (number + place).is_multiple_of(2) {
                ObjectDamage::new(
                    state,
                    "switched off",
                    format!("systemctl -q disable {unit}"),
                    probe,
                )
            } else {
                ObjectDamage::new(state, "stopped", format!("systemctl stop {unit}"), probe)
            });
        }
    }
    damages
}

/// Damages of packages, which are removed or interrupted, and of kernel parameters, which are
/// changed: live on one host, in the file that sets them at boot on the other.
pub fn packages_and_kernel(low: &Low) -> Vec<ObjectDamage> {
    low.0.iter().filter_map(package_or_parameter).collect()
}

fn package_or_parameter(state: &LowStateEntry) -> Option<ObjectDamage> {
    match state.function.as_str() {
        "pkg.installed" => {
            let probe = format!(
                "dpkg-query -W -f '${{Package}} ${{db:Status-Abbrev}}\\n' {PACKAGES}; command -v {PACKAGES}"
            );
            Some(if state.minion == BOOTSTRAP {
                let line = format!("dpkg --remove --force-depends {PACKAGES}");
                ObjectDamage::new(state, "packages removed", line, probe)
            } else {
                let what = "a package removed, and one interrupted while it was unpacked";
                ObjectDamage::new(state, what, CUT_OFF, probe)
            })
        }
        "sysctl.present" => {
            let path = format!("/proc/sys/{}", state.name.replace('.', "/"));
            let file = quote(
                state
                    .text("config")
                    .unwrap_or("/etc/sysctl.d/zz-halite.conf"),
            );
            let key = quote(&state.name);
            let line = if state.minion == BOOTSTRAP {
                format!("echo 0 > {path}")
            } else {
                format!(
                    "grep -vF {key} {file} > /root/halite-test-edit; cat /root/halite-test-edit > {file}"
                )
            };
            Some(ObjectDamage::new(
                state,
                "other value",
                line,
                format!("cat {path}; grep -F {key} {file}"),
            ))
        }
        _ => None,
    }
}

/// Damages that remove images from the runtime. Running containers already have their files.
pub fn images(low: &Low) -> Vec<ObjectDamage> {
    let images = low.0.iter().filter(|s| s.function == "image.present");
    let damage = |state: &LowStateEntry| {
        let reference = quote(&crate::images::stored(&state.name));
        ObjectDamage::new(
            state,
            "image removed",
            format!("ctr -n k8s.io images rm {reference}"),
            format!("ctr -n k8s.io images ls -q | grep -Fx {reference}"),
        )
    };
    images.map(damage).collect()
}
