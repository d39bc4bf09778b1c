//! The options under which a place needs something.

use std::fmt;

use serde::Serialize;

/// The options under which a place needs something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Uses {
    /// The first set of options that led to it.
    pub first: String,
    /// The number of renderings that have it.
    pub renderings: usize,
}

impl Uses {
    pub(super) fn add(&mut self, options: &str, renderings: usize) {
        if self.renderings == 0 {
            options.clone_into(&mut self.first);
        }
        self.renderings += renderings;
    }
}

impl fmt::Display for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first)?;
        match self.renderings {
            0 | 1 => Ok(()),
            more => write!(f, "; {} more", more - 1),
        }
    }
}
