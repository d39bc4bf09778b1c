//! The images of the site: the contents of each, at the paths of upstream's images.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::image::Run;
use super::store::Store;
use super::versions::Release;
use super::{image, lab_pod, packages, store, versions};

/// An image that the site pulls.
#[derive(Debug, Clone)]
pub struct UpstreamImage {
    /// The key under which manifests find it, `kube-apiserver` for example.
    pub component: String,
    /// Its full name.
    pub reference: String,
    /// The OCI layout that contains only this image.
    pub layout: PathBuf,
}

/// The image of the lab's test pods.
pub const LAB_POD: &str = "registry.lab.internal/lab-pod:1";

/// Content of one image.
#[derive(Debug, Serialize)]
struct Content {
    component: &'static str,
    repository: &'static str,
    tag: &'static str,
    /// Program and its path.
    programs: &'static [(&'static str, &'static str)],
    /// Debian packages, unpacked with their dependencies.
    packages: &'static [&'static str],
    /// Path within the unpacked packages and the target path; only these files are taken.
    extract: &'static [(&'static str, &'static str)],
    /// Path and target of symbolic links.
    links: &'static [(&'static str, &'static str)],
    run: Run,
}

const fn runs(entrypoint: &'static [&'static str]) -> Run {
    Run {
        entrypoint,
        arguments: &[],
        user: "",
    }
}

/// kube-proxy's and flannel's tools for both kinds of rules.
const RULES: &[&str] = &["conntrack", "iptables", "nftables"];

const BUSYBOX: &[(&str, &str)] = &[("usr/bin/cp", "busybox"), ("usr/bin/sh", "busybox")];

/// A shell, and the commands that the pods of local-path and of tests of it call.
const SHELL: &[(&str, &str)] = &[
    ("bin/cat", "busybox"),
    ("bin/mkdir", "busybox"),
    ("bin/rm", "busybox"),
    ("bin/sh", "busybox"),
    ("bin/sleep", "busybox"),
];

/// Every image of a release.
fn contents(release: &Release) -> Vec<Content> {
    let mut images = of_every_cluster(release);
    if release.contents.is_full() {
        images.extend(of_addons());
    }
    images
}

fn of_every_cluster(release: &Release) -> Vec<Content> {
    vec![
        control_plane(
            release,
            "kube-apiserver",
            "registry.k8s.io/kube-apiserver",
            &[
                ("kube-apiserver", "usr/local/bin/kube-apiserver"),
                LOG_RUNNER,
            ],
        ),
        control_plane(
            release,
            "kube-controller-manager",
            "registry.k8s.io/kube-controller-manager",
            &[
                (
                    "kube-controller-manager",
                    "usr/local/bin/kube-controller-manager",
                ),
                LOG_RUNNER,
            ],
        ),
        control_plane(
            release,
            "kube-scheduler",
            "registry.k8s.io/kube-scheduler",
            &[
                ("kube-scheduler", "usr/local/bin/kube-scheduler"),
                LOG_RUNNER,
            ],
        ),
        Content {
            packages: RULES,
            ..control_plane(
                release,
                "kube-proxy",
                "registry.k8s.io/kube-proxy",
                &[("kube-proxy", "usr/local/bin/kube-proxy"), LOG_RUNNER],
            )
        },
        Content {
            component: "etcd",
            repository: "registry.k8s.io/etcd",
            tag: release.etcd,
            programs: &[
                ("etcd", "usr/local/bin/etcd"),
                ("etcdctl", "usr/local/bin/etcdctl"),
                ("etcdutl", "usr/local/bin/etcdutl"),
            ],
            packages: &[],
            extract: &[],
            links: &[],
            run: runs(&["/usr/local/bin/etcd"]),
        },
        Content {
            component: "coredns",
            repository: "registry.k8s.io/coredns/coredns",
            tag: release.coredns,
            programs: &[("coredns", "coredns")],
            packages: &[],
            extract: &[],
            links: &[],
            run: runs(&["/coredns"]),
        },
        Content {
            component: "pause",
            repository: "registry.k8s.io/pause",
            tag: release.pause,
            programs: &[("pause", "pause")],
            packages: &[],
            extract: &[],
            links: &[],
            run: Run {
                user: "65535:65535",
                ..runs(&["/pause"])
            },
        },
        Content {
            component: "flannel",
            repository: "ghcr.io/flannel-io/flannel",
            tag: versions::FLANNEL,
            programs: &[("flanneld", "opt/bin/flanneld")],
            packages: &[
                "busybox-static",
                "conntrack",
                "iproute2",
                "iptables",
                "nftables",
            ],
            extract: &[],
            links: BUSYBOX,
            run: runs(&["/opt/bin/flanneld"]),
        },
        Content {
            component: "flannel-cni-plugin",
            repository: "ghcr.io/flannel-io/flannel-cni-plugin",
            tag: versions::FLANNEL_PLUGIN_IMAGE,
            programs: &[("cni-flannel", "flannel")],
            packages: &["busybox-static"],
            extract: &[("usr/bin/busybox", "usr/bin/busybox")],
            links: &[
                ("bin", "usr/bin"),
                ("usr/bin/cp", "busybox"),
                ("usr/bin/sh", "busybox"),
            ],
            run: Run {
                entrypoint: &[],
                arguments: &["/bin/sh"],
                user: "",
            },
        },
        Content {
            component: lab_pod::NAME,
            repository: "registry.lab.internal/lab-pod",
            tag: "1",
            programs: &[(lab_pod::NAME, "lab-pod")],
            packages: &[],
            extract: &[],
            links: &[],
            run: runs(&["/lab-pod"]),
        },
    ]
}

fn of_addons() -> [Content; 3] {
    [
        Content {
            component: "metrics-server",
            repository: "registry.k8s.io/metrics-server/metrics-server",
            tag: versions::METRICS_SERVER,
            programs: &[("metrics-server", "metrics-server")],
            packages: &[],
            extract: &[],
            links: &[],
            run: Run {
                user: "65534",
                ..runs(&["/metrics-server"])
            },
        },
        Content {
            component: "local-path-provisioner",
            repository: "docker.io/rancher/local-path-provisioner",
            tag: versions::LOCAL_PATH,
            programs: &[("local-path-provisioner", "usr/bin/local-path-provisioner")],
            packages: &[],
            extract: &[],
            links: &[],
            run: Run {
                entrypoint: &[],
                arguments: &["local-path-provisioner"],
                user: "",
            },
        },
        // Its helper pods run a shell, `mkdir` and `rm`; upstream uses busybox.
        Content {
            component: "local-path-helper",
            repository: "docker.io/library/busybox",
            tag: versions::BUSYBOX,
            programs: &[],
            packages: &["busybox-static"],
            extract: &[("usr/bin/busybox", "bin/busybox")],
            links: SHELL,
            run: Run {
                entrypoint: &[],
                arguments: &["sh"],
                user: "",
            },
        },
    ]
}

/// Upstream starts Kubernetes' own programs through this one, which writes their output to a file
/// on request.
const LOG_RUNNER: (&str, &str) = ("kube-log-runner", "go-runner");

const fn control_plane(
    release: &Release,
    component: &'static str,
    repository: &'static str,
    programs: &'static [(&'static str, &'static str)],
) -> Content {
    Content {
        component,
        repository,
        tag: release.kubernetes,
        programs,
        packages: &[],
        extract: &[],
        links: &[],
        run: runs(&["/go-runner"]),
    }
}

/// Makes the missing images of a release. `programs` maps programs to their paths.
pub fn make(
    store: &Store,
    release: &Release,
    programs: &BTreeMap<&str, PathBuf>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<UpstreamImage>> {
    contents(release)
        .iter()
        .map(|content| one(store, content, programs, progress))
        .collect()
}

fn one(
    store: &Store,
    content: &Content,
    programs: &BTreeMap<&str, PathBuf>,
    progress: &mut dyn FnMut(&str),
) -> Result<UpstreamImage> {
    let reference = format!("{}:{}", content.repository, content.tag);
    let mut sources = Vec::new();
    for (name, path) in content.programs {
        let file = programs
            .get(name)
            .with_context(|| format!("{reference}: no program {name} is built"))?;
        sources.push((file, path));
    }
    let archives = match content.packages {
        [] => Vec::new(),
        packages => packages::closure(store, packages, progress)?,
    };
    let key = store::key(&(
        image::REVISION,
        packages::REVISION,
        content,
        &sources,
        &archives,
    ))?;
    let layout = store.get(&format!("image-{}", content.component), &key, |out| {
        progress(&format!("making the image {reference}"));
        // Next to the store, so that programs are linked, not copied.
        let work = tempfile::Builder::new()
            .prefix(".root-")
            .tempdir_in(out.parent().unwrap_or(out))?;
        let root = work.path().join("root");
        fill(&root, content, &sources, &archives)?;
        image::write(&root, &reference, &content.run, out)
    })?;
    Ok(UpstreamImage {
        component: content.component.to_owned(),
        reference,
        layout,
    })
}

fn fill(
    root: &Path,
    content: &Content,
    sources: &[(&PathBuf, &&str)],
    archives: &[PathBuf],
) -> Result<()> {
    fs::create_dir_all(root)?;
    store::set_mode(root, 0o755)?;
    if content.extract.is_empty() && !archives.is_empty() {
        packages::unpack(archives, root)?;
    } else if !archives.is_empty() {
        let whole = tempfile::tempdir_in(root.parent().unwrap_or(root))?;
        packages::unpack(archives, whole.path())?;
        for (from, to) in content.extract {
            place(&whole.path().join(from), &root.join(to))?;
        }
    }
    for (file, path) in sources {
        place(file, &root.join(path))?;
    }
    for (path, target) in content.links {
        let link = root.join(path);
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        symlink(target, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    Ok(())
}

fn place(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::hard_link(from, to)
        .with_context(|| format!("cannot link {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_test_pods_has_the_name_that_they_say() {
        for release in [versions::NEWEST, versions::FULL, versions::OLDER] {
            let images = contents(&release);
            let image = images.iter().find(|image| image.component == lab_pod::NAME);
            let image = image.unwrap();
            assert_eq!(format!("{}:{}", image.repository, image.tag), LAB_POD);
        }
    }
}
