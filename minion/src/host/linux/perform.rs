//! Carries out effects on the real host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halite_errors::cut;

use super::background::in_background;
use super::command::{run_checked, run_until};
use super::extract::extract;
use super::founding::{found, join};
use super::{COMMAND, LinuxHost, background, files, firewalld, kernel, packages, systemd};
use crate::host::effect::{Effect, Output, Trust};
use crate::host::{HostError, HostResult, static_pod};

/// Longest run of the host's small tools.
const TOOL: Duration = Duration::from_secs(120);
/// Pause between two requests of a waiting state.
const ASK_AGAIN: Duration = Duration::from_millis(200);

impl LinuxHost {
    pub(super) async fn carry_out(&self, effect: &Effect) -> HostResult<Output> {
        match effect {
            Effect::Write {
                path,
                content,
                meta,
            } => {
                let owner = self.owner(meta).await?;
                background::write(Path::new(path), content, owner).await?;
            }
            Effect::Mkdir { path, meta } => {
                let owner = self.owner(meta).await?;
                let work = move |path: &Path| files::mkdir(path, owner);
                in_background("make", Path::new(path), work).await??;
            }
            Effect::Symlink { path, target } => {
                let target = target.clone();
                let work = move |path: &Path| files::symlink(path, &target);
                in_background("make the link", Path::new(path), work).await??;
            }
            Effect::SetMeta { path, meta } => {
                let owner = self.owner(meta).await?;
                let work = move |path: &Path| files::set_owner(path, owner);
                in_background("set owner and mode of", Path::new(path), work).await??;
            }
            Effect::Remove { path } => {
                in_background("remove", Path::new(path), files::remove).await??;
            }
            Effect::Packages {
                install,
                remove,
                options,
            } => {
                self.forget();
                packages::change(install, remove, *options, &self.stop).await?;
                self.forget();
                // Packages contain units and rules for the bus (and users that these rules name);
                // their scripts were kept from notifying systemd and the bus.
                systemd::reload(&self.bus).await?;
                self.bus.reload_rules().await?;
            }
            Effect::RefreshPackages { only } => {
                packages::refresh(only.as_deref(), &self.stop).await?
            }
            Effect::Unit { name, action } => {
                self.images.forget();
                systemd::change(&self.bus, name, *action).await?;
            }
            Effect::DaemonReload => systemd::reload(&self.bus).await?,
            Effect::Run(command) => {
                self.forget();
                let output = run_until(command, Some(COMMAND), &self.stop).await;
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
                let place = Path::new(archive);
                let (archive, target, strip) = (archive.clone(), PathBuf::from(target), *strip);
                let work = move |_: &Path| extract(&archive, &target, strip);
                in_background("unpack", place, work).await??;
            }
            Effect::PullImage { reference } => self.images.pull(reference, &self.stop).await?,
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
                let time = Duration::from_secs(*seconds);
                tokio::select! {
                    biased;
                    reason = self.stop.requested() => {
                        return Err(HostError::refused(format!("the wait for {url} was ended: {reason}")));
                    }
                    answered = wait_http(url, trust, &expected, time) => answered?,
                }
            }
            Effect::Rename { from, to } => {
                let to = PathBuf::from(to);
                let work = move |from: &Path| files::rename(from, &to);
                in_background("rename", Path::new(from), work).await??;
            }
            Effect::FoundEtcd(first) => return found(first, &self.stop).await,
            Effect::JoinEtcd(first) => return join(first, &self.stop).await,
            Effect::StaticPod(pod) => return static_pod::wait(self, pod).await,
        }
        Ok(Output::default())
    }

    fn forget(&self) {
        self.names.forget();
        self.installed.forget();
        self.images.forget();
    }
}

/// The answer that ends a wait.
struct AnswerSpec<'a> {
    status: u16,
    body: Option<&'a str>,
}

/// Repeats the request until the answer is as expected, or the deadline has passed.
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
                let line = cut::beginning(text.lines().next().unwrap_or_default(), 200);
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
