//! Images in a host's containerd, which `ctr` shows: the hosts have no other program for them.

use anyhow::{Result, ensure};
use halite_lab::host::Host;

/// Fails unless the host has an image of this name.
pub fn is_there(host: &Host, image: &str) -> Result<()> {
    let names = host.sh("ctr -n k8s.io images ls -q")?;
    ensure!(
        names.lines().any(|name| name == image),
        "{} lacks the image {image}",
        host.spec.name
    );
    Ok(())
}

/// Removes an image with all its names, so that nothing of it is left to use: beside its tag it has one
/// by its digest, and the one by its id that containerd's CRI adds. An image that is not there is
/// removed already.
pub fn remove(host: &Host, image: &str) -> Result<()> {
    host.sh(&removal(image)).map(drop)
}

/// Gives an image that is there the name of another one, as if it were that. It goes with [`forget`].
pub fn rename(host: &Host, image: &str, to: &str) -> Result<()> {
    let tag = ["ctr", "-n", "k8s.io", "images", "tag", "--force", image, to];
    host.run(&tag).map(drop)
}

/// Removes this name of an image, and leaves the image with its other names.
pub fn forget(host: &Host, name: &str) -> Result<()> {
    let remove = ["ctr", "-n", "k8s.io", "images", "rm", "--sync", name];
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
    fn all_names_of_an_image_are_removed_and_no_others() {
        let names: Vec<String> = (removed("a/b:1").lines())
            .map(|line| line.replace("ctr -n k8s.io images rm --sync ", ""))
            .collect();
        assert_eq!(names, ["a/b:1", "a/b@sha256:11", "sha256:99"]);
        assert_eq!(removed("a/d:1"), "");
    }
}
