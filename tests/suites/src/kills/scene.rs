//! The prepared damage whose repair gives the moments.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_lab::wait;

use super::super::repair;
use super::super::repair::damage::{host, lines};

/// Files that are damaged, in the order of their repair; each repair is a moment. Between the first
/// and the second a package is installed, which takes a second or two.
const FILES: [&str; MOMENTS] = [
    "etc/apt/apt.conf.d/60halite",
    "etc/containerd/certs.d/_default/hosts.toml",
    "etc/kubernetes/kubelet.conf",
];

/// Number of moments.
pub const MOMENTS: usize = 3;

/// Further damages: one that takes time to repair, and one that makes other units restart.
const FURTHER: [&str; 2] = [
    "dpkg --remove --force-depends socat >/dev/null",
    "printf '\\n# damaged\\n' >> /etc/kubernetes/pki/ca.crt",
];

/// Further state that must be the same afterwards.
const STATE: [&str; 3] = [
    "dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' socat; dpkg --audit",
    "sha256sum /etc/kubernetes/pki/ca.crt",
    "systemctl is-active containerd kubelet firewalld halite-minion",
];

/// Damaged hosts, and their previous state.
pub struct Scene<'a> {
    cluster: &'a Cluster,
    pods: usize,
    files: BTreeMap<(&'static str, usize), Vec<u8>>,
    state: Vec<Vec<String>>,
}

impl<'a> Scene<'a> {
    /// Damages the bootstrap host and, with `worker_too`, the worker.
    pub fn prepare(cluster: &'a Cluster, worker_too: bool) -> Result<Self> {
        repair::answering(cluster)?;
        let pods = repair::pods(cluster)?;
        repair::settled(cluster, pods)?;
        let clean = repair::highstate(cluster, &["--test"])?;
        ensure!(
            clean.changed.is_empty(),
            "there was something to repair before any damage: {:#?}",
            clean.changed
        );
        let mut scene = Self {
            cluster,
            pods,
            files: BTreeMap::new(),
            state: Vec::new(),
        };
        scene.state = scene.state()?;
        let hosts: &[&'static str] = if worker_too {
            &[BOOTSTRAP, WORKER]
        } else {
            &[BOOTSTRAP]
        };
        for name in hosts {
            let host = host(cluster, name);
            for (moment, file) in FILES.into_iter().enumerate() {
                let path = host.root().join(file);
                let content =
                    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                fs::write(&path, [content.as_slice(), b"\n# damaged\n"].concat())?;
                scene.files.insert((*name, moment), content);
            }
            for answer in lines(host, &FURTHER, true)? {
                ensure!(answer.is_empty(), "a damage could not be made: {answer}");
            }
        }
        Ok(scene)
    }

    fn state(&self) -> Result<Vec<Vec<String>>> {
        [BOOTSTRAP, WORKER]
            .into_iter()
            .map(|name| lines(host(self.cluster, name), &STATE, false))
            .collect()
    }

    /// Returns whether one of the files has its previous content.
    pub fn is_as_before(&self, place: (&'static str, usize)) -> bool {
        let file = FILES.get(place.1).copied().unwrap_or_default();
        let now = fs::read(host(self.cluster, place.0).root().join(file)).ok();
        now.as_ref() == self.files.get(&place)
    }

    /// Checks that everything is restored, and stays that way.
    pub fn is_repaired(&self) -> Result<()> {
        let damaged: Vec<_> = self
            .files
            .keys()
            .filter(|place| !self.is_as_before(**place))
            .collect();
        ensure!(damaged.is_empty(), "still damaged: {damaged:?}");
        wait::until("the hosts to be restored", Duration::from_secs(180), || {
            let now = self.state()?;
            if now == self.state {
                Ok(())
            } else {
                Err(anyhow!("was {:?}, is {now:?}", self.state))
            }
        })?;
        repair::settled(self.cluster, self.pods)?;
        repair::quiet(self.cluster)
    }
}
