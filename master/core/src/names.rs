//! Names that have a fixed meaning in every cluster, and long lists of names.

use std::borrow::Borrow;
use std::sync::LazyLock;

use halite_proto::ids::MinionId;

/// The id of the pseudo-minion whose host is the Kubernetes API. No node may have it.
pub static MASTER: LazyLock<MinionId> = LazyLock::new(MinionId::master);

/// The number of names that a text lists.
const LISTED: usize = 20;

/// Names as text: the first ones, and the number of the others. A message with the names of all
/// minions would be larger than a gRPC status can be.
#[must_use]
pub fn some_of<S: Borrow<str>>(names: &[S]) -> String {
    match names.split_at_checked(LISTED) {
        Some((listed, others)) if !others.is_empty() => {
            format!("{} and {} more", listed.join(", "), others.len())
        }
        _ => names.join(", "),
    }
}

/// Creates a minion's id, for short tests.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "for tests")]
pub fn minion(text: &str) -> MinionId {
    text.parse().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_names_ends_with_a_number() {
        let names: Vec<String> = (1..=5000).map(|number| format!("n{number}")).collect();
        assert_eq!(some_of(&names[..0]), "");
        assert_eq!(some_of(&names[..2]), "n1, n2");
        assert!(some_of(&names[..20]).ends_with(", n20"));
        assert!(some_of(&names[..21]).ends_with(", n20 and 1 more"));
        let all = some_of(&names);
        assert!(
            all.ends_with(", n20 and 4980 more") && all.len() < 200,
            "{all}"
        );
    }
}
