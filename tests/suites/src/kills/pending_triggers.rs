//! A minion that dies between a change and the states that the change triggers: the next run
//! triggers them.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;

use super::super::{guide, repair};
use super::{ended, moments, spawn};
use crate::test::Counts;

/// States: one that changes, one that takes long, and one that the change triggers.
const STATES: &str = "
/etc/halite-lab-owed:
  file.managed:
    - contents: new
halite-lab-wait:
  cmd.run:
    - name: while [ -e /run/halite-lab-wait ]; do sleep 0.1; done
    - onlyif: test -e /run/halite-lab-wait
halite-lab-act:
  cmd.run:
    - name: cat /etc/halite-lab-owed >> /run/halite-lab-acted
    - onchanges:
      - file: /etc/halite-lab-owed
";

/// Id of the state that the change triggers.
const HEARER: &str = "halite-lab-act";

/// Limit for the preceding states to be applied.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn done_later(cluster: &Cluster) -> Result<Counts> {
    guide::own_states(cluster, STATES)?;
    let result = on_worker(cluster);
    guide::no_own_states(cluster)?;
    cluster
        .worker
        .sh("rm -f /etc/halite-lab-owed /run/halite-lab-wait /run/halite-lab-acted")?;
    result?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn on_worker(cluster: &Cluster) -> Result<()> {
    let worker = &cluster.worker;
    worker.sh("touch /run/halite-lab-wait")?;
    let line = [CTL, "highstate", WORKER].map(str::to_owned);
    let mut command = spawn(&cluster.bootstrap, &line)?;
    let file = worker.file("/etc/halite-lab-owed");
    let written = wait::until("the file to be written", LIMIT, || {
        if file.exists() {
            Ok(())
        } else {
            Err(anyhow!("{} does not exist", file.display()))
        }
    });
    let died = written.and_then(|()| moments::die(worker, "halite-minion"));
    // Whatever the result: end the long state.
    worker.sh("rm /run/halite-lab-wait")?;
    let status = ended(&mut command)?;
    died?;
    ensure!(!status.success(), "the minion died, but ctl succeeded");
    repair::answering(cluster)?;
    let acted = || worker.sh("cat /run/halite-lab-acted 2>/dev/null || true");
    ensure!(acted()?.is_empty(), "the minion did not die in time");
    // The trigger is in the plan, although nothing differs; the apply acts on it; afterwards
    // nothing is pending.
    for (test, wanted, after) in [
        (true, true, ""),
        (false, true, "new"),
        (false, false, "new"),
    ] {
        let what = if test {
            &["--test", WORKER][..]
        } else {
            &[WORKER]
        };
        let answer = repair::highstate(cluster, what)?;
        let acts = answer.changed.iter().any(|tag| tag.contains(HEARER));
        ensure!(acts == wanted, "{what:?}: {:?}", answer.changed);
        ensure!(acted()?.trim_end() == after, "{what:?}: {:?}", acted()?);
    }
    Ok(())
}
