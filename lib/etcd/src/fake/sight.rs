//! What a client can see of the cluster in memory: less than there is.

use super::FakeCluster;

impl FakeCluster {
    /// Lets no client reach a member any more; the other members do.
    pub fn hide(&self, name: &str) {
        let mut state = self.state();
        for own in &mut state.members {
            if own.member.name == name {
                own.hidden = true;
            }
        }
    }

    /// Lets a member lack the newest entries; it follows its leader, and catches up with the ticks.
    pub fn lag(&self, name: &str, entries: u64) {
        let mut state = self.state();
        let applied = state.index.saturating_sub(entries);
        for own in &mut state.members {
            if own.member.name == name {
                own.applied = applied;
            }
        }
    }
}
