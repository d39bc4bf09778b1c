//! The first start of a cluster's first etcd member, by containerd.

use std::time::Duration;

use super::command::{failure, run_until};
use crate::host::effect::{Command, Output};
use crate::host::founding::Founding;
use crate::host::{HostResult, Stop};

const SCRIPT: &str = include_str!("founding.sh");
/// Time for all but the wait.
const REST: Duration = Duration::from_secs(60);

/// Makes the data of the member, whole or not at all.
///
/// # Errors
/// containerd does not answer, or etcd does not serve in time; with its last words.
pub async fn found(founding: &Founding, stop: &Stop) -> HostResult<Output> {
    let bind = |source: &str, target: &str, access: &str| {
        format!("--mount=type=bind,src={source},dst={target},options=rbind:{access}")
    };
    let data = format!("{}/data", founding.scratch());
    let mut argv = ["/bin/sh", "-c", SCRIPT, "founding.sh"]
        .map(str::to_owned)
        .to_vec();
    argv.extend([
        founding.scratch(),
        founding.member(),
        founding.seconds.to_string(),
        bind(&data, &founding.data, "rw"),
        bind(&founding.reads, &founding.reads, "ro"),
        founding.image.clone(),
        "halite-etcd-founding".to_owned(),
    ]);
    argv.extend(founding.command.iter().cloned());
    let command = Command {
        argv,
        ..Command::default()
    };
    let limit = Duration::from_secs(founding.seconds) + REST;
    let output = run_until(&command, Some(limit), stop).await?;
    if output.code == 0 {
        Ok(Output::default())
    } else {
        Err(failure(&["etcd"], &output))
    }
}
