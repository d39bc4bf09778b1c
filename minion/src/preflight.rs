//! The answer to the master's question before this host joins: the facts. The master judges them.

use halite_preflight::{NodeFacts, Question};
use serde_json::Value;

use crate::grains;

/// The facts that a question asks for, at a time in seconds since 1970.
///
/// # Errors
/// The question is malformed.
pub async fn answer(args_json: &str, now: i64) -> Result<Value, serde_json::Error> {
    let question: Question = serde_json::from_str(args_json)?;
    let mut facts = NodeFacts::answer(question, now).await;
    facts.addresses = grains::local_addresses().into_iter().collect();
    facts.mtus = grains::mtus();
    serde_json::to_value(facts)
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
