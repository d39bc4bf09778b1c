//! The disks of a host: an overlay of the base root, and directories that cannot be on one. They
//! can be destroyed, or set aside and restored.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::Host;
use crate::command::{output, run};

/// Directories that hold overlay upper layers or databases themselves and so cannot be on the
/// host's overlay.
pub(super) const DATA: [&str; 3] = ["var/lib/containerd", "var/lib/kubelet", "var/lib/etcd"];

/// File that exists once the host has an identity.
const IDENTITY: &str = "identity";

/// The directories that the host writes: the upper layer of its overlay, and the data next to it.
const WRITTEN: [&str; 3] = ["upper", "work", "data"];

/// Directory of disks that were set aside, each set under a name.
const ASIDE: &str = "aside";

impl Host {
    /// The host's root as the machine sees it while it is mounted.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Path on the machine of a file of the host, also of one outside the host's overlay.
    #[must_use]
    pub fn file(&self, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        let data = DATA
            .iter()
            .find_map(|data| Some((data, path.strip_prefix(data)?.strip_prefix('/')?)));
        match data {
            Some((data, rest)) => self.data(data).join(rest),
            None => self.root().join(path),
        }
    }

    pub(super) fn data(&self, directory: &str) -> PathBuf {
        self.dir.join("data").join(directory.replace('/', "-"))
    }

    /// Returns whether the host has written anything since it was made or its disks were destroyed.
    #[must_use]
    pub fn has_disks(&self) -> bool {
        self.dir.join("upper").exists()
    }

    /// Mounts the root, and writes the host's own files unless they exist.
    pub(super) fn mount(&self) -> Result<()> {
        let root = self.root();
        for part in ["root", "upper", "work"] {
            fs::create_dir_all(self.dir.join(part))?;
        }
        if !root.join("etc").exists() {
            let options = format!(
                "lowerdir={},upperdir={},workdir={}",
                self.base.display(),
                self.dir.join("upper").display(),
                self.dir.join("work").display()
            );
            run(
                "mount",
                &[
                    "-t",
                    "overlay",
                    "overlay",
                    "-o",
                    &options,
                    &root.to_string_lossy(),
                ],
            )?;
        }
        let machine_id = root.join("etc/machine-id");
        if fs::read_to_string(&machine_id).map_or(true, |id| id.trim().len() != 32)
            || !self.dir.join(IDENTITY).exists()
        {
            let id = fs::read_to_string("/proc/sys/kernel/random/uuid")?.replace('-', "");
            fs::write(&machine_id, id)?;
            // D-Bus has its own; that of the base root is the same on all hosts.
            let bus = root.join("var/lib/dbus/machine-id");
            if bus.symlink_metadata().is_ok() {
                fs::remove_file(&bus)?;
                symlink("/etc/machine-id", &bus)?;
            }
            fs::write(root.join("etc/hostname"), format!("{}\n", self.spec.name))?;
            fs::write(
                root.join("etc/hosts"),
                "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
            )?;
            let resolver = format!("nameserver {}.1\n", self.control_plane_network().prefix());
            fs::write(root.join("etc/resolv.conf"), resolver)?;
            fs::write(self.dir.join(IDENTITY), "")?;
        }
        Ok(())
    }

    /// Removes everything that a host without power has written, its identity included; the next
    /// boot finds a bare host of the same name. The read-only directories are not the host's.
    pub fn destroy_disks(&self) -> Result<()> {
        if self.init().is_some() {
            bail!("cannot destroy the disks of {}: it is on", self.spec.name);
        }
        // First: after an interruption the rest no longer counts as an existing host.
        if self.dir.join(IDENTITY).exists() {
            fs::remove_file(self.dir.join(IDENTITY))?;
        }
        self.unmount()?;
        WRITTEN
            .iter()
            .try_for_each(|part| erase(&self.dir.join(part)))
    }

    /// Sets the disks of a host without power aside under a name: the next boot finds a bare host
    /// of the same name and addresses.
    pub fn put_disks_aside(&self, name: &str) -> Result<()> {
        let (own, aside) = (&self.spec.name, self.aside(name));
        let cannot = || format!("cannot put the disks of {own} aside");
        ensure!(self.init().is_none(), "{}: it is on", cannot());
        ensure!(self.has_disks(), "{}: it has no disks", cannot());
        let is_taken = aside.exists();
        ensure!(!is_taken, "{}: {} exists", cannot(), aside.display());
        self.unmount()?;
        fs::create_dir_all(&aside).with_context(cannot)?;
        // First: after an interruption the rest no longer counts as an existing host.
        for part in [IDENTITY].iter().chain(&WRITTEN) {
            relocate(&self.dir.join(part), &aside.join(part)).with_context(cannot)?;
        }
        Ok(())
    }

    /// Restores the disks that were set aside under that name to a host without disks.
    pub fn bring_disks_back(&self, name: &str) -> Result<()> {
        let (own, aside) = (&self.spec.name, self.aside(name));
        let cannot = || format!("cannot bring the disks {name} of {own} back");
        ensure!(!self.has_disks(), "{}: it has others", cannot());
        ensure!(aside.exists(), "{}: there are none", cannot());
        for part in WRITTEN.iter().chain(&[IDENTITY]) {
            relocate(&aside.join(part), &self.dir.join(part)).with_context(cannot)?;
        }
        fs::remove_dir(&aside).with_context(cannot)
    }

    fn aside(&self, name: &str) -> PathBuf {
        self.dir.join(ASIDE).join(name)
    }

    fn unmount(&self) -> Result<()> {
        let root = self.root();
        if root.join("etc").exists() {
            output("umount", &["-R", &root.to_string_lossy()])?;
        }
        if root.join("etc").exists() {
            bail!("{} is still mounted", root.display());
        }
        Ok(())
    }

    /// Stops the host and removes all its files.
    pub fn destroy(&self) -> Result<()> {
        self.power_cut()?;
        self.destroy_disks()?;
        erase(&self.dir.join(ASIDE))?;
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir)
                .with_context(|| format!("cannot remove {}", self.dir.display()))?;
        }
        Ok(())
    }
}

/// Removes a directory, if it exists.
fn erase(directory: &Path) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    // A failed test may have left immutable files.
    output("chattr", &["-R", "-f", "-i", &directory.to_string_lossy()])?;
    fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))
}

/// Moves a file or directory to another place on the same file system, if it exists.
fn relocate(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    fs::rename(from, to)
        .with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Spec;

    fn host(directory: &Path) -> Host {
        let spec = Spec {
            name: "one".to_owned(),
            number: 11,
            second_network: false,
            read_only: Vec::new(),
            inotify: 0,
            roles: Vec::new(),
            base: None,
        };
        Host::new("a", directory, Path::new("/base"), spec)
    }

    #[test]
    fn files_are_found_at_their_paths() {
        let host = host(Path::new("/labs/a"));
        assert_eq!(
            host.file("/etc/hosts"),
            Path::new("/labs/a/hosts/one/root/etc/hosts")
        );
        assert_eq!(
            host.file("var/lib/kubelet/pki/x"),
            Path::new("/labs/a/hosts/one/data/var-lib-kubelet/pki/x")
        );
        assert_eq!(
            host.file("var/lib/kubelet-other"),
            Path::new("/labs/a/hosts/one/root/var/lib/kubelet-other")
        );
    }

    #[test]
    fn disks_that_are_put_aside_come_back_as_they_were() {
        let lab = tempfile::tempdir().unwrap();
        let host = host(lab.path());
        let write = |text: &str| {
            for part in WRITTEN {
                fs::create_dir_all(host.dir.join(part)).unwrap();
                fs::write(host.dir.join(part).join("file"), text).unwrap();
            }
            fs::write(host.dir.join(IDENTITY), text).unwrap();
        };
        let error = |outcome: Result<()>| outcome.unwrap_err().to_string();
        assert!(error(host.put_disks_aside("old")).contains("it has no disks"));
        write("old");
        host.put_disks_aside("old").unwrap();
        assert!(!host.has_disks() && !host.dir.join(IDENTITY).exists());
        write("new");
        assert!(error(host.put_disks_aside("old")).contains("exists"));
        assert!(error(host.bring_disks_back("old")).contains("it has others"));
        host.put_disks_aside("new").unwrap();
        assert!(error(host.bring_disks_back("older")).contains("there are none"));
        host.bring_disks_back("old").unwrap();
        for part in ["upper/file", "data/file", IDENTITY] {
            let text = fs::read_to_string(host.dir.join(part)).unwrap();
            assert_eq!(text, "old", "{part}");
        }
        assert!(!host.aside("old").exists() && host.aside("new").exists());
    }
}
