//! Images in a host's containerd, which `ctr` shows: the hosts have no other program for them.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::bundle_place;
use halite_lab::host::Host;
use serde_json::Value;

/// The reference of a component's image in a bundle of the host, with its digest.
pub fn of_bundle(host: &Host, version: &str, component: &str) -> Result<String> {
    let manifest = host.run(&["cat", &format!("{}/manifest.json", bundle_place(version))])?;
    let manifest: Value = serde_json::from_str(&manifest)?;
    let image = manifest["images"][component].as_str();
    let image = image.with_context(|| format!("no image of {component}"))?;
    ensure!(image.contains("@sha256:"), "{image} has no digest");
    Ok(image.to_owned())
}

/// The name under which containerd stores an image: for an image with a digest it drops the tag.
pub fn stored(reference: &str) -> String {
    match reference.split_once('@') {
        Some((name, digest)) => {
            let repository = name.rsplit_once(':').map_or(name, |(name, _)| name);
            format!("{repository}@{digest}")
        }
        None => reference.to_owned(),
    }
}

/// The names of all images of a host.
pub fn names(host: &Host) -> Result<Vec<String>> {
    let names = host.sh("ctr -n k8s.io images ls -q")?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// The name, by its digest, of the image that a host has of a repository.
pub fn by_digest(host: &Host, repository: &str) -> Result<String> {
    let start = format!("{repository}@sha256:");
    let name = names(host)?
        .into_iter()
        .find(|name| name.starts_with(&start));
    name.with_context(|| format!("{} has no image {repository}", host.spec.name))
}

/// Fails unless the host has an image of this name.
pub fn is_there(host: &Host, image: &str) -> Result<()> {
    ensure!(
        names(host)?.contains(&stored(image)),
        "{} lacks the image {image}",
        host.spec.name
    );
    Ok(())
}

/// Removes an image with all its names, so that nothing of it can be used: in addition to its tag
/// it has a name by its digest, and one by its id that containerd's CRI adds. A missing image
/// counts as removed.
pub fn remove(host: &Host, image: &str) -> Result<()> {
    host.sh(&removal(&stored(image))).map(drop)
}

/// Gives an existing image the name of another one, as if it were that. [`forget`] removes the
/// name.
pub fn rename(host: &Host, image: &str, to: &str) -> Result<()> {
    let (image, to) = (stored(image), stored(to));
    let tag = ["ctr", "-n", "k8s.io", "images", "tag", "--force"];
    host.run(&[&tag[..], &[&image, &to]].concat()).map(drop)
}

/// Removes this name of an image, and keeps the image with its other names.
pub fn forget(host: &Host, name: &str) -> Result<()> {
    let name = stored(name);
    let remove = ["ctr", "-n", "k8s.io", "images", "rm", "--sync", &name];
    host.run(&remove).map(drop)
}

/// The line for a shell. The names of one image have the same digest, which is the third column.
fn removal(image: &str) -> String {
    format!(
        "images=$(ctr -n k8s.io images ls) || exit 1; \
         digest=$(echo \"$images\" | awk '$1 == \"{image}\" {{print $3}}'); \
         test -n \"$digest\" || exit 0; \
         echo \"$images\" | awk -v digest=\"$digest\" '$3 == digest {{print $1}}' | xargs ctr -n k8s.io images rm --sync"
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A `ctr` that has three names of one image and one of another, and prints what it removes.
    const CTR: &str = "\
        ctr() { \
          case \"$*\" in \
            '-n k8s.io images ls') printf '%s\\n' 'REF TYPE DIGEST SIZE' 'a/b:1 t sha256:11 9' \
              'a/b@sha256:11 t sha256:11 9' 'sha256:99 t sha256:11 9' 'a/c:1 t sha256:22 9';; \
            *) echo unexpected \"$*\"; return 1;; \
          esac; \
        }; \
        xargs() { while read -r name; do echo \"$* $name\"; done; }; ";

    fn removed(image: &str) -> String {
        let line = format!("{CTR}{}", removal(image));
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn an_image_with_a_digest_is_stored_without_its_tag() {
        assert_eq!(stored("a.b:5000/c:1@sha256:11"), "a.b:5000/c@sha256:11");
        assert_eq!(stored("a.b:5000/c:1"), "a.b:5000/c:1");
    }

    #[test]
    fn all_names_of_an_image_are_removed_and_no_others() {
        let names: Vec<String> = (removed("a/b:1").lines())
            .map(|line| line.replace("ctr -n k8s.io images rm --sync ", ""))
            .collect();
        assert_eq!(names, ["a/b:1", "a/b@sha256:11", "sha256:99"]);
        assert_eq!(removed("a/d:1"), "");
    }
}
