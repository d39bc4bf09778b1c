//! Progress of long operations, reported at each 10 %.

/// Reports progress at each 10 % of the whole, in decimal megabytes.
pub struct ByteProgress<'a> {
    what: &'static str,
    done: u64,
    total: u64,
    shown: u64,
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> ByteProgress<'a> {
    /// Creates a report for the action `what` on `total` bytes.
    pub fn new(what: &'static str, total: u64, progress: &'a mut dyn FnMut(&str)) -> Self {
        Self {
            what,
            done: 0,
            total,
            shown: 0,
            progress,
        }
    }

    /// Adds `size` finished bytes.
    pub fn add(&mut self, size: u64) {
        self.at(self.done.saturating_add(size));
    }

    /// Sets the number of finished bytes.
    pub fn at(&mut self, done: u64) {
        self.done = done;
        // Ten times the total cannot overflow: an image has at most 8 TiB.
        let tenth = self
            .done
            .saturating_mul(10)
            .checked_div(self.total)
            .unwrap_or(10);
        if tenth > self.shown {
            self.shown = tenth;
            let (what, done, total) = (self.what, self.done / 1_000_000, self.total / 1_000_000);
            (self.progress)(&format!("{what} {done} of {total} MB"));
        }
    }
}
