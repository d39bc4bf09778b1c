//! The answer to the master's query before this host joins: the facts. The master judges them.

use std::net::SocketAddr;
use std::time::Duration;

use halite_errors::chain;
use halite_preflight::{NodeFacts, Question, VirtualAddress, WhoAnswers};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::grains;
use crate::host::linux::http::{NotCertified, certified};

/// The time for the holder of the virtual address to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// The address may be moving at this moment: it is asked again, after a pause.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// The facts that a query requests, at a time in seconds since 1970.
///
/// # Errors
/// The question is malformed.
pub async fn answer(args_json: &str, now: i64) -> Result<Value, serde_json::Error> {
    let question: Question = serde_json::from_str(args_json)?;
    let vip = question.vip.clone();
    let (mut facts, holder) =
        tokio::join!(NodeFacts::answer(question, now), who_answers(vip.as_ref()));
    facts.vip_holder = holder;
    facts.addresses = grains::local_addresses().into_iter().collect();
    facts.mtus = grains::mtus();
    serde_json::to_value(facts)
}

/// Asks at the virtual address for its holder.
async fn who_answers(vip: Option<&VirtualAddress>) -> Option<WhoAnswers> {
    let vip = vip?;
    let server = SocketAddr::from((vip.address, vip.port));
    let mut attempt = 1;
    loop {
        let reason = match timeout(ANSWER, certified(server, &vip.name, &vip.ca)).await {
            Ok(Ok(())) => return Some(WhoAnswers::ThisCluster),
            Ok(Err(error @ NotCertified::Certificate(_))) => {
                return Some(WhoAnswers::Another(chain(&error)));
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
        };
        if attempt >= ATTEMPTS {
            return Some(WhoAnswers::Nothing(reason));
        }
        attempt += 1;
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn the_facts_of_this_host_are_the_answer() {
        let answered = answer("{}", 7).await.unwrap();
        let facts: NodeFacts = serde_json::from_value(answered).unwrap();
        assert_eq!(facts.now, 7);
        assert!(facts.memory > 0 && facts.addresses.contains(&Ipv4Addr::LOCALHOST));
        assert!(
            facts.mtus.contains_key(&Ipv4Addr::LOCALHOST),
            "{:?}",
            facts.mtus
        );
        assert_eq!(facts.fsync_p99_us, None, "only a host of etcd is measured");
        assert!(answer("7", 7).await.is_err());
    }
}
