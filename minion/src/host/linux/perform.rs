//! Carries out effects on the real host.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::{run, run_checked};
use super::files::Owner;
use super::{LinuxHost, files, firewalld, kernel, packages, systemd};
use crate::host::archive::{Entry, unpack};
use crate::host::effect::{Effect, Output, Trust};
use crate::host::{HostError, HostResult};

/// Longest run of the host's small tools.
const TOOL: Duration = Duration::from_secs(120);
/// Time between two requests of a waiting state.
const ASK_AGAIN: Duration = Duration::from_millis(200);

impl LinuxHost {
    pub(super) async fn carry_out(&self, effect: &Effect) -> HostResult<Output> {
        match effect {
            Effect::Write {
                path,
                content,
                meta,
            } => {
                files::write(Path::new(path), content, self.owner(meta).await?)?;
            }
            Effect::Mkdir { path, meta } => files::mkdir(Path::new(path), self.owner(meta).await?)?,
            Effect::Symlink { path, target } => files::symlink(Path::new(path), target)?,
            Effect::SetMeta { path, meta } => {
                files::set_owner(Path::new(path), self.owner(meta).await?)?
            }
            Effect::Remove { path } => files::remove(Path::new(path))?,
            Effect::Packages {
                install,
                remove,
                options,
            } => {
                self.forget();
                packages::change(install, remove, *options).await?;
                self.forget();
                // Packages bring units and rules for the bus (and users that these rules name);
                // their scripts were kept from telling systemd and the bus.
                systemd::reload(&self.bus).await?;
                self.bus.reload_rules().await?;
            }
            Effect::RefreshPackages => packages::refresh().await?,
            Effect::Unit { name, action } => {
                self.images.forget();
                systemd::change(&self.bus, name, *action).await?;
            }
            Effect::DaemonReload => systemd::reload(&self.bus).await?,
            Effect::Run(command) => {
                self.forget();
                let output = run(command, None).await;
                self.forget();
                return output;
            }
            Effect::Sysctl { key, value } => kernel::set_sysctl(key, value)?,
            Effect::LoadModule { name } => tool(&["modprobe", "--", name]).await?,
            Effect::Mount {
                device,
                path,
                fstype,
                options,
            } => {
                let options = if options.is_empty() {
                    "defaults"
                } else {
                    options
                };
                tool(&["mount", "-t", fstype, "-o", options, "--", device, path]).await?;
            }
            Effect::Unmount { path } => tool(&["umount", "--", path]).await?,
            Effect::SwapOff { device } => tool(&["swapoff", "--", device]).await?,
            Effect::Firewall(change) => firewalld::change(&self.bus, change).await?,
            Effect::Extract {
                archive,
                target,
                strip,
            } => {
                let name = PathBuf::from(archive);
                let (archive, target, strip) = (archive.clone(), PathBuf::from(target), *strip);
                let work = move || extract(&archive, &target, strip);
                tokio::task::spawn_blocking(work).await.map_err(|e| {
                    HostError::failed(format!("cannot unpack {}", name.display()), e)
                })??;
            }
            Effect::PullImage { reference } => self.images.pull(reference).await?,
            Effect::Certificate(request) => self.certificate(request).await?,
            Effect::WaitHttp {
                url,
                trust,
                status,
                body,
                seconds,
            } => {
                let expected = AnswerSpec {
                    status: *status,
                    body: body.as_deref(),
                };
                wait_http(url, trust, &expected, Duration::from_secs(*seconds)).await?;
            }
        }
        Ok(Output::default())
    }

    fn forget(&self) {
        self.names.forget();
        self.installed.forget();
        self.images.forget();
    }
}

/// The answer that a wait ends with.
struct AnswerSpec<'a> {
    status: u16,
    body: Option<&'a str>,
}

/// Repeats the request until the answer is as expected, or time is up.
async fn wait_http(
    url: &str,
    trust: &Trust,
    expected: &AnswerSpec<'_>,
    time: Duration,
) -> HostResult<()> {
    let end = tokio::time::Instant::now() + time;
    loop {
        let answer = super::http::get(url, trust).await?;
        let last = match &answer {
            Some((status, text))
                if *status == expected.status && expected.body.is_none_or(|b| text.contains(b)) =>
            {
                return Ok(());
            }
            Some((status, text)) => {
                let line: String = text
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(200)
                    .collect();
                format!("the last answer was {status}: {line}")
            }
            None if url.starts_with("https:") && *trust == Trust::Host => {
                "nothing answers there with a certificate that this host trusts; give the server's \
                 CA as `ca`, or `verify_ssl: False`"
                    .to_owned()
            }
            None => "nothing answers there".to_owned(),
        };
        if tokio::time::Instant::now() >= end {
            return Err(HostError::refused(format!(
                "{url} did not answer {} within {} s: {last}",
                expected.status,
                time.as_secs()
            )));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

async fn tool(argv: &[&str]) -> HostResult<()> {
    run_checked(argv, &[], TOOL).await.map(drop)
}

/// Unpacks an archive: each file whole or not at all, all durable at the end, all owned by root.
fn extract(archive: &str, target: &Path, strip: u32) -> HostResult<()> {
    let file = std::fs::File::open(archive).map_err(|e| HostError::io("read", archive, e))?;
    let owner = |mode: u32| Owner {
        uid: Some(0),
        gid: Some(0),
        mode: Some(mode),
    };
    let directories = |path: &Path| -> HostResult<()> {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|p| !p.is_dir()).collect();
        missing.reverse();
        missing
            .into_iter()
            .try_for_each(|p| files::mkdir(p, owner(0o755)))
    };
    directories(target)?;
    unpack(archive, BufReader::new(file), strip, |path, mode, entry| {
        let path = target.join(path);
        directories(path.parent().unwrap_or(target))?;
        within(&path, target)?;
        match entry {
            Entry::Directory => files::mkdir(&path, owner(mode)),
            Entry::File(content) => {
                if files::stat(&path)?.is_some_and(|s| s.kind == crate::host::FileKind::Symlink) {
                    files::remove(&path)?;
                }
                files::write_unsynced(&path, &content, owner(mode))
            }
            Entry::Symlink(to) => files::symlink(&path, &to),
            Entry::Hardlink(to) => {
                let from = target.join(to);
                within(&from, target)?;
                let content = files::read(&from)?.unwrap_or_default();
                files::write_unsynced(&path, &content, owner(mode))
            }
        }
    })?;
    files::sync_tree(target)
}

/// Refuses an entry whose directory is outside of the target because of a link in the archive.
fn within(path: &Path, target: &Path) -> HostResult<()> {
    let outside = || {
        HostError::refused(format!(
            "{} would be unpacked outside of {}",
            path.display(),
            target.display()
        ))
    };
    let parent = path
        .parent()
        .unwrap_or(target)
        .canonicalize()
        .map_err(|_| outside())?;
    let root = target.canonicalize().map_err(|_| outside())?;
    if parent.starts_with(root) {
        Ok(())
    } else {
        Err(outside())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_cannot_leave_its_target_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        link.set_mode(0o777);
        builder.append_link(&mut link, "out", "..").unwrap();
        let mut file = tar::Header::new_gnu();
        file.set_size(1);
        file.set_mode(0o644);
        builder
            .append_data(&mut file, "out/evil", b"x".as_slice())
            .unwrap();
        let archive = dir.path().join("a.tar");
        std::fs::write(&archive, builder.into_inner().unwrap()).unwrap();
        let target = dir.path().join("target");
        let error = extract(archive.to_str().unwrap(), &target, 0).unwrap_err();
        assert!(error.to_string().contains("outside"), "{error}");
        assert!(!dir.path().join("evil").exists());
    }
}
