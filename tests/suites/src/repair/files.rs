//! Damages of files: content, mode, owner, loss.

use halite_lab::cluster::{BOOTSTRAP, WORKER};

use super::damage::{ObjectDamage, quote};
use super::low::{Low, LowStateEntry};

/// Static pods without which the API would be down, so that a prediction would be blind to its
/// objects.
const NEEDED_PODS: [&str; 2] = ["kube-apiserver.yaml", "etcd.yaml"];

/// The address of damaged host entries: one of the host itself, so that no packet tries to leave.
const ELSEWHERE: &str = "127.0.0.9";

fn hosts(low: &Low) -> impl Iterator<Item = &LowStateEntry> {
    low.0
        .iter()
        .filter(|s| [BOOTSTRAP, WORKER].contains(&s.minion.as_str()) && !s.only_follows)
}

/// Prints type, mode, owner and content.
pub fn whole(path: &str) -> String {
    let path = quote(path);
    format!("stat -c '%F %a %U %G' {path}; sha256sum < {path}")
}

/// Rewrites a file in place, so that mode and owner stay, and its directory never has a second
/// file.
fn edited(path: &str, expression: &str) -> String {
    let path = quote(path);
    format!(
        "sed -E {} {path} > /root/halite-test-edit && cat /root/halite-test-edit > {path}",
        quote(expression)
    )
}

/// Damages that give every file another content, every link another target, every name another
/// address.
pub fn content(low: &Low) -> Vec<ObjectDamage> {
    let mut damages: Vec<ObjectDamage> = hosts(low).filter_map(other_content).collect();
    damages.extend(
        hosts(low)
            .filter(|s| s.function == "host.present")
            .map(|state| {
                let name = quote(&state.name);
                let line = edited(
                    "/etc/hosts",
                    &format!(
                        r"/[[:space:]]{}([[:space:]]|$)/ s/^[0-9.]+/{ELSEWHERE}/",
                        state.name
                    ),
                );
                ObjectDamage::new(state, "points elsewhere", line, addresses(&name))
            }),
    );
    damages
}

/// Prints the addresses that `/etc/hosts` gives a name.
fn addresses(quoted_name: &str) -> String {
    format!(
        "awk -v n={quoted_name} '{{for (i = 2; i <= NF; i++) if ($i == n) print $1}}' /etc/hosts"
    )
}

fn other_content(state: &LowStateEntry) -> Option<ObjectDamage> {
    let path = state.name.as_str();
    let quoted = quote(path);
    let damage = |what, line: String| Some(ObjectDamage::new(state, what, line, whole(path)));
    match state.function.as_str() {
        // A running program's file cannot be written, only replaced.
        "file.managed" if path.starts_with("/usr/local/bin/") => damage(
            "replaced program",
            format!(
                "cp -p {quoted} {quoted}.x && echo damaged >> {quoted}.x && mv {quoted}.x {quoted}"
            ),
        ),
        "file.managed" if path.starts_with("/etc/kubernetes/manifests/") && !is_needed(path) => {
            damage(
                "another flag",
                edited(
                    path,
                    r"s/^(    - )kube-(scheduler|controller-manager)$/&\n\1--v=1/",
                ),
            )
        }
        "file.managed" => damage(
            "a line more",
            format!("printf '\\n# damaged\\n' >> {quoted}"),
        ),
        "kubeconfig.managed" => Some(ObjectDamage::new(
            state,
            "another server",
            edited(path, "s|(server: ).*|\\1https://127.0.0.1:1|"),
            kubeconfig(path),
        )),
        "pkgrepo.managed" => {
            let list = repository(path);
            Some(ObjectDamage::new(
                state,
                "a line more",
                format!("echo '# damaged' >> {list}"),
                format!("cat {list}"),
            ))
        }
        "file.symlink" => Some(ObjectDamage::new(
            state,
            "leads elsewhere",
            format!("ln -sfn /nowhere {quoted}"),
            format!("readlink {quoted}"),
        )),
        "file.absent" => Some(ObjectDamage::new(
            state,
            "is there",
            // Make a file like one of an earlier Halite, which the state removes; an operator's own
            // file there may stay.
            format!("mkdir -p \"$(dirname {quoted})\" && echo '# Written by Halite' > {quoted}"),
            format!("ls {quoted}"),
        )),
        "swap.absent" => Some(ObjectDamage::new(
            state,
            "an entry in fstab",
            "echo '/halite-test-swap none swap sw 0 0' >> /etc/fstab",
            "grep -cE '^[^#].*[[:space:]]swap[[:space:]]' /etc/fstab; true",
        )),
        _ => None,
    }
}

/// Returns whether it is the manifest of a pod without which the API would be down.
pub fn is_needed(path: &str) -> bool {
    NEEDED_PODS.iter().any(|pod| path.ends_with(pod))
}

fn repository(name: &str) -> String {
    quote(&format!("/etc/apt/sources.list.d/{name}.list"))
}

/// Damages that give every file and directory another mode on one host and another owner on the
/// other.
pub fn modes_and_owners(low: &Low) -> Vec<ObjectDamage> {
    let ours = [
        "file.managed",
        "file.directory",
        "kubeconfig.managed",
        "x509.certificate",
    ];
    let damage = |state: &LowStateEntry| {
        let path = quote(&state.name);
        let probe = format!("stat -c '%F %a %U %G' {path}");
        let is_owner = (state.index + usize::from(state.minion == WORKER)).is_multiple_of(2);
        if is_owner {
            ObjectDamage::new(
                state,
                "another owner",
                format!("chown nobody:nogroup {path}"),
                probe,
            )
        } else {
            ObjectDamage::new(state, "another mode", format!("chmod go+w {path}"), probe)
        }
    };
    hosts(low)
        .filter(|s| ours.contains(&s.function.as_str()))
        .map(damage)
        .collect()
}

/// Damages that remove files. The only removed directory holds no foreign files.
pub fn lost(low: &Low) -> Vec<ObjectDamage> {
    hosts(low).filter_map(lost_one).collect()
}

fn lost_one(state: &LowStateEntry) -> Option<ObjectDamage> {
    let path = state.name.as_str();
    let quoted = quote(path);
    let probe = match state.function.as_str() {
        "file.managed" if is_needed(path) => return None,
        "file.managed" | "etcd.recorded" => whole(path),
        "kubeconfig.managed" => kubeconfig(path),
        "file.symlink" => format!("readlink {quoted}"),
        "file.directory" if path == "/root/.kube" => format!("stat -c '%F %a %U %G' {quoted}"),
        "pkgrepo.managed" => {
            let list = repository(path);
            return Some(ObjectDamage::new(
                state,
                "lost",
                format!("rm {list}"),
                format!("cat {list}"),
            ));
        }
        _ => return None,
    };
    Some(ObjectDamage::new(
        state,
        "lost",
        format!("rm -rf {quoted}"),
        probe,
    ))
}

/// Damages that remove names from `/etc/hosts`. They must not be combined with damages that break
/// connections: a program that looks up the name again would query the name server.
pub fn lost_names(low: &Low) -> Vec<ObjectDamage> {
    let names = hosts(low).filter(|s| s.function == "host.present");
    let damage = |state: &LowStateEntry| {
        let line = edited(
            "/etc/hosts",
            &format!(r"/[[:space:]]{}([[:space:]]|$)/d", state.name),
        );
        ObjectDamage::new(state, "lost", line, addresses(&quote(&state.name)))
    };
    names.map(damage).collect()
}

/// Prints a kubeconfig without the text of its certificate and key, which is new each time, but
/// with their relevant properties.
pub fn kubeconfig(path: &str) -> String {
    let path = quote(path);
    format!(
        "stat -c '%F %a %U %G' {path}; sed -E 's/(client-(certificate|key)-data: ).*/\\1.../' {path}\n\
         data() {{ sed -n \"s/.*client-$1-data: //p\" {path} | base64 -d; }}\n\
         if grep -q client-certificate-data {path}; then\n\
         data certificate | openssl x509 -noout -subject -issuer -checkend 8640000\n\
         public=$(data key | openssl pkey -pubout) && test \"$(data certificate | openssl x509 -noout -pubkey)\" = \"$public\" && echo key fits\n\
         fi"
    )
}
