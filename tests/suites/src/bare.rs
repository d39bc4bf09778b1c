//! A host on which nothing of Halite is left.

use std::time::Duration;

use anyhow::{Context as _, Result};
use halite_lab::host::Host;
use halite_lab::wait;

/// Limit for the unit that goes last: the minion finishes its work first.
const GONE: Duration = Duration::from_secs(240);

/// Files that go last.
const LAST: &str = "! test -e /usr/local/bin/halite-minion && ! test -e /var/lib/halite && ! test -e /etc/halite && \
                    ! test -e /etc/systemd/system/halite-leave.service";

/// Waits until the last of Halite has gone from a host.
pub(crate) fn wait_until_bare(host: &Host) -> Result<()> {
    let what = format!("the last of Halite to be gone from {}", host.spec.name);
    wait::until(&what, GONE, || host.sh(LAST).map(drop))
}

/// Fails when something of Halite is left on a host; `names` is a pattern of the cluster's other
/// names.
pub(crate) fn is_bare(host: &Host, names: &str) -> Result<()> {
    let names = format!("! grep -E '{names}' /etc/hosts");
    let bare = [
        LAST,
        "! test -e /etc/kubernetes",
        "! test -e /srv/halite",
        "! test -e /var/lib/kubelet/config.yaml",
        "! systemctl --quiet is-active kubelet containerd halite-minion halite-master",
        "! pgrep -x kubelet && ! pgrep -f '[c]ontainerd-shim' && ! pgrep -f '[/]usr/local/bin/halite'",
        "! ip link show cni0 2>/dev/null",
        "! firewall-cmd --permanent --get-policies | grep halite",
        "! firewall-cmd --get-ipsets | grep halite",
        "! find /etc/apt /etc/nginx /etc/systemd/system /usr/local -name '*halite*' | grep .",
        "! test -e /usr/local/bin/ctl",
        &names,
    ];
    for check in bare {
        host.sh(check)
            .with_context(|| format!("on {}: {check}", host.spec.name))?;
    }
    Ok(())
}
