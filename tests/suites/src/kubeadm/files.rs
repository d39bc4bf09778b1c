//! The files of a control-plane host, as a picture of their meaning.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::certificate::Authorities;
use super::difference::Picture;
use super::{certificate, kubeconfig};

/// Shell functions that print files: a line `==> MODE OWNER PATH`, then the content and a newline,
/// without any private key. `dump PREFIX PATHS…` prints the existing paths below the working
/// directory, as `PREFIX/PATH`.
pub(super) const DUMP: &str = r#"
dump() {
  prefix=$1; shift
  find -L "$@" -type f 2>/dev/null | sort | while read -r file; do
    stat -L -c "==> %a %U:%G $prefix$file" "$file"
    case $file in
      *.key) ;;
      *.pem) sed -n '/BEGIN CERTIFICATE/,/END CERTIFICATE/p' "$file"; echo ;;
      *) cat "$file"; echo ;;
    esac
  done
}
"#;

/// Prints the files of a host on which Kubernetes runs.
pub(super) const OF_HOST: &str = "
cd /etc/kubernetes && dump '' pki manifests *.conf
cd /var/lib/kubelet && dump kubelet/ config.yaml instance-config.yaml kubeadm-flags.env
";

/// Prints the files of a worker: the same, and the certificate that its kubelet uses.
pub(super) const OF_WORKER: &str = "
cd /var/lib/kubelet && dump kubelet/ pki/kubelet-client-current.pem
";

/// One file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct File {
    /// Path below `/etc/kubernetes`, or `kubelet/NAME` for `/var/lib/kubelet/NAME`.
    pub(super) path: String,
    /// Permission bits and owner, for example `600 root:root`.
    pub(super) access: String,
    /// The content; empty for a private key.
    pub(super) text: String,
}

/// Parses the output of [`DUMP`].
pub(super) fn parse(printed: &str) -> Result<Vec<File>> {
    let mut files: Vec<File> = Vec::new();
    for line in printed.lines() {
        if let Some(head) = line.strip_prefix("==> ") {
            let (access, path) = head.rsplit_once(' ').context("a file's line has no path")?;
            files.push(File {
                path: path.to_owned(),
                access: access.to_owned(),
                text: String::new(),
            });
        } else {
            let file = files
                .last_mut()
                .with_context(|| format!("unexpected output: {line}"))?;
            file.text.push_str(line);
            file.text.push('\n');
        }
    }
    files.iter_mut().for_each(|file| {
        file.text.pop();
    });
    Ok(files)
}

/// The authorities whose certificates are among the files.
pub(super) fn authorities(files: &[File]) -> Authorities {
    let mut authorities = Authorities::default();
    for file in files.iter().filter(|file| file.path.ends_with(".crt")) {
        // An unreadable certificate does not belong to an authority; the picture reports it.
        let _ = authorities.add(&file.path, &file.text);
    }
    authorities
}

/// The meaning of the files. Mode and owner of all of them are one place, `access`. Files that
/// cannot be parsed, and so are not kubeadm's, are in `unreadable`.
pub(super) fn picture(files: &[File], authorities: &Authorities) -> Picture {
    let mut picture = Picture::new();
    let mut access = Map::new();
    for file in files {
        access.insert(file.path.clone(), json!(file.access));
        match meaning(&file.path, &file.text, authorities) {
            Ok(Some((place, value))) => {
                picture.insert(place, value);
            }
            Ok(None) => {}
            Err(error) => {
                picture.insert(
                    format!("unreadable/{}", file.path),
                    json!(format!("{error:#}")),
                );
            }
        }
    }
    picture.insert("access".to_owned(), Value::Object(access));
    picture
}

/// Place and meaning of a file; `None` for a private key, which has nothing to compare.
pub(super) fn meaning(
    path: &str,
    text: &str,
    authorities: &Authorities,
) -> Result<Option<(String, Value)>> {
    Ok(if let Some(name) = path.strip_prefix("manifests/") {
        let mut pod: Value = serde_saphyr::from_str(text)?;
        without_server_fields(&mut pod);
        Some((
            format!("static-pod/{}", name.trim_end_matches(".yaml")),
            pod,
        ))
    } else if path == "kubelet/kubeadm-flags.env" {
        Some((path.to_owned(), flags(text)?))
    } else if let Some(name) = path.strip_prefix("kubelet/pki/") {
        let place = format!("certificate/{}", name.trim_end_matches("-current.pem"));
        Some((place, certificate::describe(text, authorities)?))
    } else if path.starts_with("kubelet/") {
        Some((path.to_owned(), serde_saphyr::from_str(text)?))
    } else if let Some(name) = path.strip_prefix("pki/") {
        let name = name
            .strip_suffix(".crt")
            .map(|name| format!("certificate/{name}"));
        name.map(|place| Ok::<_, anyhow::Error>((place, certificate::describe(text, authorities)?)))
            .transpose()?
    } else {
        Some((
            format!("kubeconfig/{path}"),
            kubeconfig::describe(text, authorities)?,
        ))
    })
}

/// Removes the server-side fields of a type, which Go writes even if they are unset.
pub(super) fn without_server_fields(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for name in [
                "creationTimestamp",
                "resourceVersion",
                "uid",
                "generation",
                "managedFields",
                "selfLink",
            ] {
                metadata.remove(name);
            }
        }
    }
}

/// `KUBELET_KUBEADM_ARGS="--a=b --c=d"` as a list.
fn flags(text: &str) -> Result<Value> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("KUBELET_KUBEADM_ARGS="));
    let line = line.context("KUBELET_KUBEADM_ARGS is not set")?;
    Ok(json!(
        line.trim()
            .trim_matches('"')
            .split_whitespace()
            .collect::<Vec<_>>()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_files_are_read_back() {
        let files = parse("==> 600 root:root pki/ca.key\n==> 644 root:root kubelet/kubeadm-flags.env\nA=b\nKUBELET_KUBEADM_ARGS=\"--x=1 --y\"\n\n").unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!(files[1].text, "A=b\nKUBELET_KUBEADM_ARGS=\"--x=1 --y\"\n");
        let picture = picture(&files, &authorities(&files));
        assert_eq!(
            picture["kubelet/kubeadm-flags.env"],
            json!(["--x=1", "--y"])
        );
        assert_eq!(picture["access"]["pki/ca.key"], "600 root:root");
        assert_eq!(picture.len(), 2);
        let foreign = parse("==> 644 root:root pki/foreign.crt\nno certificate\n\n").unwrap();
        let picture = super::picture(&foreign, &authorities(&foreign));
        assert!(
            picture.contains_key("unreadable/pki/foreign.crt"),
            "{picture:?}"
        );
        assert!(parse("text without a file\n").is_err());
    }

    #[test]
    fn a_static_pod_is_compared_without_server_fields() {
        let text = "kind: Pod\nmetadata:\n  creationTimestamp: null\n  name: etcd\nstatus: {}\n";
        let (place, pod) = meaning("manifests/etcd.yaml", text, &Authorities::default())
            .unwrap()
            .unwrap();
        assert_eq!(place, "static-pod/etcd");
        assert_eq!(pod, json!({"kind": "Pod", "metadata": {"name": "etcd"}}));
    }
}
