//! A client's partial view of the cluster in memory.

use super::FakeCluster;

impl FakeCluster {
    /// Hides a member from all clients; the other members still reach it.
    pub fn hide(&self, name: &str) {
        let mut state = self.state();
        for own in &mut state.members {
            if own.member.name == name {
                own.hidden = true;
            }
        }
    }

    /// Makes a member lag by this many entries; it follows its leader, and catches up with the
    /// ticks.
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
