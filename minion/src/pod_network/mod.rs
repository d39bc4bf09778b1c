//! The answer to the master's query about the pod network on this host. It probes from the network
//! namespace of a running pod, creates nothing and leaves nothing behind; the master judges.

mod namespaces;
mod probe;
mod setup;

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use halite_host_reports::pod_network::{Fault, PodNetworkReport, Question, What};
use serde_json::Value;

use self::probe::Missed;
use crate::host::linux::command::{command, run};

/// The time for `ip` to answer.
const TOOL: Duration = Duration::from_secs(1);

/// The answer to a query: at once without targets, otherwise within the time of a probe.
///
/// # Errors
/// The question is malformed.
pub async fn answer(args_json: &str) -> Result<Value, serde_json::Error> {
    let question: Question = serde_json::from_str(args_json)?;
    let targets = question.targets.clone();
    let (setup, (source, missed)) = tokio::join!(
        setup::inspect(Path::new("/")),
        namespaces::from_a_pod(question, |question| probe::all(&question.targets)),
    );
    let mut faults = Vec::new();
    for Missed {
        target,
        reason,
        no_route,
    } in missed
    {
        let interface = match targets
            .get(target)
            .map(|target| (&target.what, target.address))
        {
            Some((What::Pod(_), address)) => interface(address).await,
            _ => String::new(),
        };
        faults.push(Fault {
            target,
            reason,
            no_route,
            interface,
        });
    }
    serde_json::to_value(PodNetworkReport {
        setup: Some(setup),
        source,
        faults,
    })
}

/// The interface through which the host sends packets to an address.
async fn interface(address: Ipv4Addr) -> String {
    let address = address.to_string();
    let command = command(&["ip", "-4", "route", "get", &address], &[]);
    let output = run(&command, Some(TOOL)).await;
    output.map_or_else(|_| String::new(), |output| device(&output.stdout))
}

/// The word after `dev`.
fn device(route: &str) -> String {
    let mut words = route.split_whitespace();
    words.find(|word| *word == "dev");
    words.next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_host_without_pods_asks_itself() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let service =
            |address: &str, port: u16| json!({"what": "Service", "address": address, "port": port});
        let question = json!({"pods": "192.0.2.0/24", "targets": [service("127.0.0.1", port), service("224.0.0.1", 1)]});
        let answered = answer(&question.to_string()).await.unwrap();
        let found: PodNetworkReport = serde_json::from_value(answered).unwrap();
        assert_eq!(found.source, None);
        let [fault] = found.faults.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((fault.target, fault.interface.as_str()), (1, ""));
        assert!(found.setup.is_some());
        assert!(answer("7").await.is_err());
    }

    #[test]
    fn the_interface_is_that_of_the_route() {
        let route = "10.233.2.5 via 10.233.2.0 dev flannel.1 src 10.233.1.0 uid 0 \n    cache \n";
        assert_eq!(device(route), "flannel.1");
        assert_eq!(device("10.10.0.1 dev eth0"), "eth0");
        assert_eq!(device(""), "");
    }
}
