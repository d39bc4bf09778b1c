//! Damages other than changed, lost or stopped objects: something else in place of a file or of a
//! unit, and obstacles to a repair by root.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};

use super::answer::highstate;
use super::damage::{ObjectDamage, quote};
use super::files::{is_needed, kubeconfig, whole};
use super::low::{Low, LowStateEntry};
use super::one_cycle::quiet;
use crate::test::Counts;

/// Files that no running program reads, so that it does not wait for the other end of a pipe.
const UNREAD: [&str; 4] = [
    "/etc/halite/master.yaml",
    "/etc/halite/minion.yaml",
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/super-admin.conf",
];

/// The file by which `ctl` finds its master. Without it `ctl` requires `--master`, so it stays
/// readable: a round repairs all damages by one plain `ctl highstate`.
const MASTERS: &str = "/etc/halite/masters";

/// Damages that replace every file with a directory, a link or a pipe, or make it immutable with
/// other content.
pub fn places(low: &Low) -> Vec<ObjectDamage> {
    low.0.iter().filter_map(place).collect()
}

fn place(state: &LowStateEntry) -> Option<ObjectDamage> {
    let path = state.name.as_str();
    let probe = match state.function.as_str() {
        "file.managed" if is_needed(path) || starts_containerd(state) => return None,
        "file.managed" => whole(path),
        "kubeconfig.managed" => kubeconfig(path),
        _ => return None,
    };
    let quoted = quote(path);
    let is_program = path.starts_with("/usr/local/bin/");
    let is_link_to_file = state.function == "file.managed";
    let (what, line) = if UNREAD.contains(&path) {
        ("a pipe", format!("rm {quoted} && mkfifo {quoted}"))
    } else {
        let kind = if path == MASTERS { 1 } else { state.index % 3 };
        match kind {
            0 if !is_program => (
                "immutable",
                format!("printf '\\n# damaged\\n' >> {quoted} && chattr +i {quoted}"),
            ),
            1 if is_link_to_file => {
                let target = quote(&format!("/root/halite-test-link-{}", state.index));
                (
                    "a link",
                    format!("mv {quoted} {target} && ln -s {target} {quoted}"),
                )
            }
            _ => (
                "a directory",
                format!("rm {quoted} && mkdir {quoted} && touch {quoted}/inside"),
            ),
        }
    };
    // Reading a pipe would wait for its other end.
    let probe = format!(
        "test ! -p {quoted} || {{ echo a pipe; exit 0; }}\n{probe}\nlsattr -d {quoted} | cut -d' ' -f1 | tr -d -c ia; echo"
    );
    Some(ObjectDamage::new(state, what, line, probe))
}

/// The configuration that [`units`] damages in its own way.
fn starts_containerd(state: &LowStateEntry) -> bool {
    state.minion == WORKER && state.name == "/etc/containerd/config.toml"
}

/// Restarts containerd until systemd gives up. While systemd still tries, a test run cannot know
/// that `containerd-answers` will have nothing to wait for.
const FAIL: &str = "for i in 1 2 3 4 5 6 7; do systemctl restart containerd; done; ! systemctl -q is-active containerd";

/// Damages that mask or alias units, put an operator's own files over them, or keep them from
/// starting.
pub fn units(low: &Low) -> Vec<ObjectDamage> {
    let own = |unit: &str| format!("/etc/systemd/system/{unit}.service");
    let vendor = |unit: &str| format!("/lib/systemd/system/{unit}.service");
    let (kubelet, containerd) = (own("kubelet"), own("containerd"));
    let all = [
        (
            BOOTSTRAP,
            "kubelet",
            "an alias",
            format!(
                "systemctl stop kubelet && ln -s {} {kubelet} && systemctl daemon-reload",
                vendor("systemd-journald")
            ),
        ),
        (
            BOOTSTRAP,
            "containerd",
            "an own unit file",
            format!(
                "sed 's|^ExecStart=.*|ExecStart=/bin/false|' {} > {containerd} && systemctl daemon-reload && {FAIL}",
                vendor("containerd")
            ),
        ),
        (
            BOOTSTRAP,
            "nginx",
            "masked until the next boot",
            "systemctl mask --runtime nginx".to_owned(),
        ),
        (
            WORKER,
            "kubelet",
            "an own drop-in",
            // The damage of containerd below would make a kubelet that still looks for its runtime
            // exit, and it would restart repeatedly.
            format!(
                "printf '[Service]\\nEnvironment=OWN=1\\n' > {kubelet}.d/99-own.conf && systemctl daemon-reload && \
             systemctl restart kubelet && \
             for i in $(seq 600); do curl -sf --noproxy '*' -o /dev/null http://127.0.0.1:10248/healthz && exit 0; sleep 0.1; done; \
             echo 'the kubelet does not start'; exit 1"
            ),
        ),
        (
            WORKER,
            "firewalld",
            "masked",
            "systemctl mask firewalld".to_owned(),
        ),
    ];
    let mut damages: Vec<ObjectDamage> = all
        .into_iter()
        .filter_map(|(host, unit, what, line)| {
            let state = low
                .of(host)
                .find(|s| s.function == "service.running" && s.name == unit)?;
            let probe = format!(
                "systemctl show {unit} -p Id -p LoadState -p ActiveState -p UnitFileState -p FragmentPath -p DropInPaths"
            );
            Some(ObjectDamage::new(state, what, line, probe))
        })
        .collect();
    let starts = low.of(WORKER).find(|s| starts_containerd(s));
    damages.extend(starts.map(|state| {
        let path = quote(&state.name);
        let line = format!("echo '[broken' > {path}; {FAIL}");
        let probe = format!("{}; systemctl is-active containerd", whole(&state.name));
        ObjectDamage::new(state, "keeps containerd from starting", line, probe)
    }));
    damages
}

/// A file system over a directory of Halite is refused with the remedy, and nothing is written into
/// it.
pub fn mounted(cluster: &Cluster) -> Result<Counts> {
    const DIRECTORY: &str = "/etc/containerd/certs.d";
    let host = &cluster.worker;
    host.run(&["mount", "-t", "tmpfs", "halite-test", DIRECTORY])?;
    let outcome = (|| {
        for command in [&["highstate", WORKER][..], &["highstate", WORKER, "--test"]] {
            let output = cluster.bootstrap.output(&[&[CTL], command].concat())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            ensure!(
                !output.status.success(),
                "ctl {command:?} succeeded: {text}"
            );
            for part in [DIRECTORY, "tmpfs of halite-test", "umount"] {
                ensure!(text.contains(part), "no `{part}` in: {text}");
            }
            let left = host.run(&["ls", "-A", DIRECTORY])?;
            ensure!(left.is_empty(), "ctl {command:?} wrote into it: {left}");
        }
        Ok(())
    })();
    // The tests after this one need the directory.
    host.run(&["umount", DIRECTORY])?;
    outcome?;
    highstate(cluster, &[]).context("without the mount")?;
    quiet(cluster)?;
    Ok(Counts::ONE)
}
