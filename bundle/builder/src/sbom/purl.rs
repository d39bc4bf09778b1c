//! Package URLs (<https://github.com/package-url/purl-spec>): the identifier of a package in its
//! own ecosystem.

use halite_fetch::ImageRef;

use super::golang::Module;

/// The URL of an image, by its digest.
pub fn image(reference: &ImageRef, digest: &str) -> String {
    let name = reference.repository.rsplit('/').next().unwrap_or_default();
    format!(
        "pkg:oci/{}@{}?arch=amd64&repository_url={}/{}&tag={}",
        percent(name),
        percent(digest),
        reference.registry,
        reference.repository,
        percent(&reference.tag)
    )
}

/// The URL of a package of a system's package manager; `kind` is `deb` or `apk`.
pub fn installed(
    kind: &str,
    vendor: &str,
    name: &str,
    version: &str,
    architecture: &str,
) -> String {
    format!(
        "pkg:{kind}/{vendor}/{}@{}?arch={}",
        percent(name),
        percent(version),
        percent(architecture)
    )
}

/// The URL of a Go module, possibly with a package in it.
pub fn module(module: &Module, package: &str) -> String {
    let path = module
        .path
        .to_lowercase()
        .split('/')
        .map(percent)
        .collect::<Vec<_>>()
        .join("/");
    let below = package
        .strip_prefix(&module.path)
        .map(|below| below.trim_matches('/'))
        .unwrap_or_default();
    let version = match module.version.as_str() {
        "" | "(devel)" => String::new(),
        version => format!("@{}", percent(version)),
    };
    if below.is_empty() {
        format!("pkg:golang/{path}{version}")
    } else {
        format!("pkg:golang/{path}{version}#{below}")
    }
}

/// The URL of a crate.
pub fn cargo(name: &str, version: &str) -> String {
    format!("pkg:cargo/{}@{}", percent(name), percent(version))
}

/// The URL of a program without an ecosystem.
pub fn generic(name: &str, version: &str) -> String {
    format!("pkg:generic/{}@{}", percent(name), percent(version))
}

/// Percent-encodes one part of a URL.
fn percent(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specification() {
        let reference = ImageRef::parse("registry.k8s.io/coredns/coredns:v1.14.2").unwrap();
        assert_eq!(
            image(&reference, "sha256:ab"),
            "pkg:oci/coredns@sha256%3Aab?arch=amd64&repository_url=registry.k8s.io/coredns/coredns&tag=v1.14.2"
        );
        assert_eq!(
            installed("deb", "debian", "libstdc++6", "1:12.2+b1", "amd64"),
            "pkg:deb/debian/libstdc%2B%2B6@1%3A12.2%2Bb1?arch=amd64"
        );
        let of = |path: &str, version: &str| Module {
            path: path.into(),
            version: version.into(),
            sum: String::new(),
        };
        assert_eq!(
            module(&of("github.com/Azure/x", "v1.0.0+incompatible"), ""),
            "pkg:golang/github.com/azure/x@v1.0.0%2Bincompatible"
        );
        assert_eq!(
            module(
                &of("k8s.io/kubernetes", "v1.36.3"),
                "k8s.io/kubernetes/cmd/kubelet"
            ),
            "pkg:golang/k8s.io/kubernetes@v1.36.3#cmd/kubelet"
        );
        assert_eq!(
            module(&of("upstream", "(devel)"), "k8s.io/x"),
            "pkg:golang/upstream"
        );
    }
}
