//! The answer to the master's query for this host's health: addresses, the lifetimes of the
//! certificates, the free space for the data of etcd, and whether the host is still bare. It reads
//! files and changes nothing.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_host_reports::etcd::{DATA, LOG};
use halite_host_reports::health::{HostHealth, Lifetime};
use halite_preflight::{REPOSITORY, held_packages};
use halite_states::certificates::{KUBELET_CLIENT, KUBELET_SERVER};
use x509_parser::pem::Pem;

use crate::grains;
use crate::host::linux::files;

/// The directories with certificates, and the directories with kubeconfigs.
const CERTIFICATES: [&str; 6] = [
    "/etc/kubernetes/pki",
    "/etc/kubernetes/pki/etcd",
    "/etc/halite/pki",
    "/etc/halite/registry",
    "/etc/halite/operator",
    "/var/lib/halite/minion",
];
const KUBECONFIGS: &str = "/etc/kubernetes";
/// The kubelet's certificate in use, behind a link. Its directory also has the earlier ones.
const KUBELET: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// The CA of the cluster. The kubelet's serving certificate counts if this CA has signed it: no
/// program verifies a certificate that the kubelet has signed itself.
const CA: &str = "/etc/kubernetes/pki/ca.crt";
/// The directories of containerd's images and of the site's bundles.
const IMAGES: &str = "/var/lib/containerd";
const BUNDLES: &str = "/var/lib/halite/bundles";
/// The line of a kubeconfig with the client's certificate.
const EMBEDDED: &str = "client-certificate-data:";

/// Files of the `halite.host` states that follow its packages; a host in use has one of them unless
/// the operator has switched off all their features.
const PREPARED: [&str; 4] = [
    "/etc/modules-load.d/halite.conf",
    "/etc/sysctl.d/zz-halite.conf",
    // The name in earlier versions.
    "/etc/sysctl.d/99-halite.conf",
    "/etc/firewalld/policies/halite-host.xml",
];

/// The health of the host below a root; `busy` while states are applied there.
#[must_use]
pub fn report(root: &Path, busy: bool) -> HostHealth {
    HostHealth {
        boot: boot(root).unwrap_or_default(),
        addresses: grains::local_addresses(),
        mtus: grains::mtus(),
        certificates: certificates(root),
        etcd_free: etcd_free(root),
        images_free: free(root, IMAGES),
        bundles_free: free(root, BUNDLES),
        held: held_packages(root),
        bare: is_bare(root, busy),
    }
}

/// The free bytes of the file system with the data of an etcd member, for users other than root.
fn etcd_free(root: &Path) -> Option<u64> {
    let data = root.join(DATA.trim_start_matches('/'));
    let log = files::utf8_names(&data.join(LOG)).ok()?;
    if log.is_empty() {
        return None;
    }
    let found = rustix::fs::statvfs(&data).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The free bytes of the file system that has or will have a directory, for users other than root.
fn free(root: &Path, directory: &str) -> Option<u64> {
    let path = root.join(directory.trim_start_matches('/'));
    let mut there = path.ancestors();
    let found = there.find_map(|path| rustix::fs::statvfs(path).ok())?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns `true` until the host's own run has installed its packages. While the first states are
/// applied, a host with a repository is bare; otherwise its run was cut off, and other runs may
/// change it.
fn is_bare(root: &Path, busy: bool) -> bool {
    let has_one = |paths: &[&str]| {
        let mut below = paths
            .iter()
            .map(|path| root.join(path.trim_start_matches('/')));
        below.any(|path| files::stat(&path).is_ok_and(|found| found.is_some()))
    };
    !has_one(&PREPARED) && (busy || !has_one(&REPOSITORY))
}

/// The kernel's identity of the boot and the start time of the first process. A container shares
/// the kernel of its host, so only the second one changes when it boots.
fn boot(root: &Path) -> Option<String> {
    let text = |path: &str| {
        let content = files::read(&root.join(path)).ok().flatten()?;
        String::from_utf8(content).ok()
    };
    let kernel = text("proc/sys/kernel/random/boot_id")?;
    let first = text("proc/1/stat")?;
    // The name of the program may have spaces, and is in parentheses (man 5 proc).
    let (_, fields) = first.rsplit_once(')')?;
    let started = fields.split_whitespace().nth(19)?;
    Some(format!("{}-{started}", kernel.trim()))
}

/// The lifetimes of all certificates, the earliest end first.
fn certificates(root: &Path) -> Vec<Lifetime> {
    let mut found = Vec::new();
    let mut take = |path: &Path| {
        let below = root.join(path.strip_prefix("/").unwrap_or(path));
        found.extend(lifetime(path, &below));
    };
    for directory in CERTIFICATES {
        named(root, directory, "crt")
            .iter()
            .for_each(|path| take(path));
    }
    for path in named(root, KUBECONFIGS, "conf") {
        take(&path);
    }
    take(Path::new(KUBELET));
    take(Path::new(KUBELET_CLIENT));
    if is_of_the_ca(root, KUBELET_SERVER) {
        take(Path::new(KUBELET_SERVER));
    }
    found.sort();
    found
}

/// The files of a directory with this suffix, as paths of the host.
fn named(root: &Path, directory: &str, ending: &str) -> Vec<PathBuf> {
    let below = root.join(directory.trim_start_matches('/'));
    let names = files::utf8_names(&below).unwrap_or_default();
    let paths = names
        .into_iter()
        .map(|name| Path::new(directory).join(name));
    paths
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect()
}

/// Returns whether the CA of the cluster is the issuer of the first certificate in a file.
fn is_of_the_ca(root: &Path, path: &str) -> bool {
    let read = |path: &str| {
        let content = files::read(&root.join(path.trim_start_matches('/')));
        first(&content.ok().flatten()?)
    };
    let (Some(leaf), Some(ca)) = (read(path), read(CA)) else {
        return false;
    };
    match (leaf.parse_x509(), ca.parse_x509()) {
        (Ok(leaf), Ok(ca)) => leaf.issuer().as_raw() == ca.subject().as_raw(),
        _ => false,
    }
}

/// The first certificate in a PEM text.
fn first(pem: &[u8]) -> Option<Pem> {
    Pem::iter_from_buffer(pem)
        .flatten()
        .find(|block| block.label == "CERTIFICATE")
}

/// The lifetime of the first certificate in a file; `None` if the file has no certificate.
fn lifetime(path: &Path, below: &Path) -> Option<Lifetime> {
    let content = files::read(below).ok().flatten()?;
    let pem = match path.extension().is_some_and(|ending| ending == "conf") {
        true => embedded(&content)?,
        false => content,
    };
    let first = first(&pem)?;
    let certificate = first.parse_x509().ok()?;
    let validity = certificate.validity();
    Some(Lifetime {
        ends: validity.not_after.timestamp(),
        begins: validity.not_before.timestamp(),
        path: path.display().to_string(),
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
    })
}

/// The client's certificate in a kubeconfig.
fn embedded(kubeconfig: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(kubeconfig).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(EMBEDDED))?;
    STANDARD.decode(line.trim().trim_matches(['"', '\''])).ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test makes a host's files")]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn certificate(days: u8) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 1 + days);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn each_certificate_is_found_where_it_is_used() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(certificates(root.path()), []);
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("etc/kubernetes/pki/apiserver.crt", &certificate(15));
        put("etc/kubernetes/pki/apiserver.key", &certificate(1));
        put("etc/kubernetes/pki/etcd/server.crt", &certificate(10));
        put("etc/kubernetes/pki/damaged.crt", "no certificate");
        // Like a file of an operator with another encoding.
        let stray = OsStr::from_bytes(b"etc/kubernetes/pki/\xff.crt");
        fs::write(root.path().join(stray), "").unwrap();
        let data = STANDARD.encode(certificate(5));
        put(
            "etc/kubernetes/admin.conf",
            &format!("users:\n- user:\n    {EMBEDDED} {data}\n"),
        );
        put(
            "etc/kubernetes/kubelet.conf",
            "users:\n- user:\n    client-certificate: /x\n",
        );
        put(KUBELET.trim_start_matches('/'), &certificate(20));
        let found = certificates(root.path());
        let begins = found[0].begins;
        let days: Vec<(i64, &str)> = found
            .iter()
            .map(|one| ((one.ends - begins) / 86_400, one.path.as_str()))
            .collect();
        assert_eq!(
            days,
            [
                (5, "/etc/kubernetes/admin.conf"),
                (10, "/etc/kubernetes/pki/etcd/server.crt"),
                (15, "/etc/kubernetes/pki/apiserver.crt"),
                (20, KUBELET),
            ]
        );
    }

    #[test]
    fn a_serving_certificate_that_the_kubelet_made_itself_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let named = |name: &str| {
            let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, name);
            params
        };
        let (ca_key, key) = (
            rcgen::KeyPair::generate().unwrap(),
            rcgen::KeyPair::generate().unwrap(),
        );
        let mut ca = named("kubernetes");
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        put(CA, &ca.self_signed(&ca_key).unwrap().pem());
        put(KUBELET_SERVER, &certificate(9));
        put(KUBELET_CLIENT, &certificate(8));
        let paths = || {
            let found = certificates(root.path()).into_iter();
            found.map(|one| one.path).collect::<Vec<_>>()
        };
        assert_eq!(paths(), [KUBELET_CLIENT, CA]);
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let signed = named("a").signed_by(&key, &issuer).unwrap();
        put(KUBELET_SERVER, &signed.pem());
        assert!(
            paths().contains(&KUBELET_SERVER.to_owned()),
            "{:?}",
            paths()
        );
        let found = certificates(root.path());
        let own = found.iter().find(|one| one.path == KUBELET_SERVER);
        let names = own.map(|own| (own.subject.as_str(), own.issuer.as_str()));
        assert_eq!(names, Some(("CN=a", "CN=kubernetes")));
    }

    #[test]
    fn a_host_is_bare_until_its_own_packages_are_there() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let bare = |busy: bool| report(root.path(), busy).bare;
        // The script that enrols a host leaves the first file, another Kubernetes the second.
        put("/etc/halite/pki/site-ca.crt");
        put("/var/lib/kubelet/config.yaml");
        assert!(bare(false) && bare(true));
        for repository in REPOSITORY {
            put(repository);
            // Its packages are being installed, or that was cut off.
            assert!(bare(true) && !bare(false), "{repository}");
            fs::remove_file(root.path().join(&repository[1..])).unwrap();
        }
        for prepared in PREPARED {
            put(prepared);
            assert!(!bare(true) && !bare(false), "{prepared}");
            fs::remove_file(root.path().join(&prepared[1..])).unwrap();
        }
        assert!(bare(false));
    }

    /// A host that has left the cluster is bare again.
    #[test]
    fn what_says_that_a_host_is_in_use_goes_when_it_leaves() {
        let leaves = include_str!("../../states/tree/halite/leave/host.sls");
        let firewall = "/etc/firewalld/policies/halite-host.xml";
        for path in REPOSITORY.iter().chain(&PREPARED) {
            match *path == firewall {
                true => assert!(
                    leaves.contains("firewalld.owned:\n    - zones: []\n    - policies: []")
                ),
                false => assert!(leaves.contains(&format!("'{path}'")), "{path}"),
            }
        }
    }

    /// In the form in which the shell reads it in the step that reboots a host.
    #[test]
    fn a_boot_is_named_by_the_kernel_and_the_first_process() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(boot(root.path()), None);
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/sys/kernel/random/boot_id", "c0ffee-1\n");
        put(
            "proc/1/stat",
            "1 (a b) c) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 174075904 3 0",
        );
        assert_eq!(boot(root.path()).as_deref(), Some("c0ffee-1-4711"));
        let own = boot(Path::new("/")).unwrap();
        assert!(own.len() > 36, "{own}");
    }

    #[test]
    fn the_room_for_etcd_is_that_of_a_member_alone() {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("var/lib/etcd/member/wal");
        fs::create_dir_all(&log).unwrap();
        assert_eq!(etcd_free(root.path()), None, "one that has left");
        fs::write(log.join("0-0.wal"), "").unwrap();
        assert!(etcd_free(root.path()) > Some(0));
        // Before the directory exists its file system is the one of the nearest parent.
        assert!(free(root.path(), IMAGES) > Some(0));
    }

    #[test]
    fn the_addresses_of_this_host_are_there() {
        let found = report(Path::new("/nowhere"), false).addresses;
        assert!(found.contains(&std::net::Ipv4Addr::LOCALHOST), "{found:?}");
    }
}
