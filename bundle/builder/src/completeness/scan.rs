//! Names of images in text.

use std::borrow::Cow;

use halite_fetch::{ImageRef, InvalidImageRef};

/// Registries whose images are recognised without a tag.
const REGISTRIES: &[&str] = &[
    "docker.io",
    "gcr.io",
    "ghcr.io",
    "index.docker.io",
    "k8s.gcr.io",
    "mcr.microsoft.com",
    "nvcr.io",
    "public.ecr.aws",
    "quay.io",
    "registry.access.redhat.com",
    "registry.gitlab.com",
    "registry.k8s.io",
    "registry.redhat.io",
];

/// Effects of taints: `KEY:EFFECT` otherwise looks like an image.
const TAINTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Finds all full names of images in a text: names with a registry and a tag or digest, and names
/// in a well-known registry.
pub fn images(text: &str) -> Vec<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    text.split(|c| !part(c)).filter_map(image).collect()
}

/// Returns `true` if the value of an image field could be an image; words such as `Always` cannot.
pub fn could_be_image(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.contains([':', '/'])
        && !text.contains("://")
        && !text.ends_with([':', '/'])
        && text.chars().all(inner)
}

/// The parts of an image's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name<'a> {
    /// Registry, repository and tag; the tag may be missing if there is a digest.
    pub tagged: &'a str,
    /// The digest with its `sha256:`.
    pub digest: Option<&'a str>,
}

/// A text that is not the full name of an image.
#[derive(Debug, thiserror::Error)]
pub enum InvalidName {
    /// Its registry, name or tag is missing or malformed.
    #[error(transparent)]
    Reference(#[from] InvalidImageRef),
    /// Its digest is malformed.
    #[error("{0:?} is not a SHA-256 digest")]
    Digest(String),
}

/// Splits a full name as containerd would resolve it.
///
/// # Errors
/// A part is missing or malformed.
pub fn full(text: &str) -> Result<Name<'_>, InvalidName> {
    let (tagged, digest) = match text.split_once('@') {
        Some((tagged, digest)) => (tagged, Some(digest)),
        None => (text, None),
    };
    match digest {
        None => ImageRef::parse(tagged).map(|_| ())?,
        Some(digest) => {
            let hex = digest.strip_prefix("sha256:").unwrap_or_default();
            if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(InvalidName::Digest(digest.to_owned()));
            }
            // A digest makes the tag irrelevant.
            ImageRef::parse(tagged).or_else(|_| ImageRef::parse(&format!("{tagged}:tag")))?;
        }
    }
    Ok(Name { tagged, digest })
}

/// The full name by which containerd's CRI pulls an image: a name without a registry is one of
/// Docker Hub, and a name without a tag and a digest has the tag `latest` (`ParseDockerRef` of
/// `github.com/distribution/reference`).
pub fn pulled(text: &str) -> Cow<'_, str> {
    const HUB: &str = "docker.io";
    if text.is_empty() {
        return Cow::Borrowed(text);
    }
    let is_host = |part: &str| {
        part.contains(['.', ':']) || part == "localhost" || part.chars().any(char::is_uppercase)
    };
    let (registry, name) = match text.split_once('/') {
        Some(("index.docker.io", name)) => (HUB, name),
        Some((registry, name)) if is_host(registry) => (registry, name),
        _ => (HUB, text),
    };
    let folder = if registry == HUB && !name.contains('/') {
        "library/"
    } else {
        ""
    };
    let tag = if name.contains([':', '@']) {
        ""
    } else {
        ":latest"
    };
    let full = format!("{registry}/{folder}{name}{tag}");
    match full == text {
        true => Cow::Borrowed(text),
        false => Cow::Owned(full),
    }
}

/// The registry and the repository of an image's name, without its tag.
pub fn repository(tagged: &str) -> &str {
    match tagged.rsplit_once(':') {
        // The colon of a port comes before a slash.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => tagged,
    }
}

fn image(token: &str) -> Option<&str> {
    let token = match token.rsplit_once("://") {
        Some((scheme, rest)) if scheme.ends_with("docker") || scheme.ends_with("oci") => rest,
        Some(_) => return None,
        None => token,
    };
    let token = token.trim_end_matches(['.', ':', '/', '-', '@', '+', '_']);
    let (host, rest) = token.split_once('/')?;
    let known = REGISTRIES.contains(&host);
    if rest.is_empty() || !(known || is_registry(host)) {
        return None;
    }
    let full_name = full(token).is_ok();
    let tag = token.rsplit_once(':').map_or("", |(_, tag)| tag);
    ((known || full_name) && !TAINTS.contains(&tag)).then_some(token)
}

/// Returns `true` if a host could be a registry: `localhost`, a domain name or an address, with or
/// without a port.
fn is_registry(host: &str) -> bool {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit())) {
        return false;
    }
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty()
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels: Vec<&str> = name.split('.').collect();
    if !labels.iter().all(|one| label(one)) {
        return false;
    }
    let domain = labels.len() > 1
        && labels
            .last()
            .is_some_and(|last| last.len() > 1 && last.bytes().all(|b| b.is_ascii_alphabetic()));
    name == "localhost" || domain || port.is_some() || name.parse::<std::net::Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_wherever_they_stand() {
        for (text, expected) in [
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            (
                "--solver-image=quay.io/jetstack/acme:v1.2",
                "quay.io/jetstack/acme:v1.2",
            ),
            (
                "\"sandbox\" = \"registry.k8s.io/pause:3.10.2\"\n",
                "registry.k8s.io/pause:3.10.2",
            ),
            (
                "pull docker.io/library/busybox.",
                "docker.io/library/busybox",
            ),
            ("docker://ghcr.io/a/b:1", "ghcr.io/a/b:1"),
            ("x=10.0.0.1:5000/a/b:1,y", "10.0.0.1:5000/a/b:1"),
            ("localhost:5000/a:1", "localhost:5000/a:1"),
            ("images: [example.com/a:1]", "example.com/a:1"),
        ] {
            assert_eq!(images(text), [expected], "{text}");
        }
        let digest = format!("ghcr.io/a/b@sha256:{}", "0".repeat(64));
        assert_eq!(images(&format!("'{digest}'")), [digest.as_str()]);
    }

    #[test]
    fn what_only_looks_like_one_is_left_alone() {
        for text in [
            "rbac.authorization.k8s.io/v1",
            "node-role.kubernetes.io/control-plane:NoSchedule",
            "https://10.0.0.1:4551/enrol.sh",
            "unix:///run/containerd/containerd.sock",
            "/etc/cni/net.d/a:ro",
            "registry.k8s.io",
            "conf.d/a:ro",
            "v1.36.3/a:b",
            "plugins.\"io.containerd.cri.v1.images\"",
            "system:node:worker-1",
            "https://registry.k8s.io/v2/pause:3",
            "2026-01-01T00:00:00Z",
        ] {
            assert_eq!(images(text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn short_names_stand_out_where_an_image_belongs() {
        for text in ["busybox:1.36", "rancher/mirrored", "quay.io/a:1"] {
            assert!(could_be_image(text), "{text}");
        }
        for text in [
            "Always",
            "IfNotPresent",
            "true",
            "/var/lib/image",
            "https://a/b",
            "a b:c",
            "",
        ] {
            assert!(!could_be_image(text), "{text}");
        }
    }

    #[test]
    fn short_names_are_completed_as_containerd_does_it() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let by_digest = format!("busybox@{digest}");
        for (text, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("rancher/mirrored:1", "docker.io/rancher/mirrored:1"),
            ("docker.io/busybox:1", "docker.io/library/busybox:1"),
            ("index.docker.io/busybox:1", "docker.io/library/busybox:1"),
            ("quay.io/a", "quay.io/a:latest"),
            ("localhost/a:1", "localhost/a:1"),
            ("host:5000/a", "host:5000/a:latest"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            (&by_digest, &format!("docker.io/library/{by_digest}")),
            ("", ""),
        ] {
            assert_eq!(pulled(text), full);
        }
    }

    #[test]
    fn a_full_name_has_registry_and_tag_or_digest() {
        let digest = format!("sha256:{}", "0".repeat(64));
        assert_eq!(
            full("a.b/c:1").unwrap(),
            Name {
                tagged: "a.b/c:1",
                digest: None
            }
        );
        let text = format!("a.b/c@{digest}");
        assert_eq!(
            full(&text).unwrap(),
            Name {
                tagged: "a.b/c",
                digest: Some(&digest)
            }
        );
        assert!(full(&format!("a.b/c:1@{digest}")).is_ok());
        for text in [
            "busybox",
            "busybox:1",
            "library/busybox:1",
            "a.b/c",
            "a.b/c@sha256:00",
        ] {
            assert!(full(text).is_err(), "{text}");
        }
    }
}
