//! Sites with bundles, of which each test gets a copy: building them takes longer.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::files::run;
use crate::site::Site;

/// A site that is made once for the tests that run at the same time. The last of them removes it,
/// so that nothing is left behind.
#[derive(Default)]
pub struct SharedSite(Mutex<Weak<Site>>);

/// A copy of a shared site, for one test.
pub struct SiteCopy {
    site: Site,
    /// The next test needs it, too.
    _original: Arc<Site>,
}

impl SharedSite {
    /// A site that is not made yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// A copy of the site, which is made if no test has it.
    pub fn copy(&self, make: impl FnOnce() -> Site) -> SiteCopy {
        let original = self.original(make);
        let dir = tempfile::tempdir().unwrap();
        let content = original.path(".");
        // Times and hard links stay: a build compares the times of files in its cache.
        let args = ["-a", content.to_str().unwrap(), "."];
        run("coreutils", dir.path(), "cp", &args);
        let recipe = original.recipe.clone();
        SiteCopy {
            site: Site { dir, recipe },
            _original: original,
        }
    }

    fn original(&self, make: impl FnOnce() -> Site) -> Arc<Site> {
        // When it cannot be made, each test says so itself.
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let made = Arc::new(make());
            *shared = Arc::downgrade(&made);
            made
        })
    }
}

impl Deref for SiteCopy {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl DerefMut for SiteCopy {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.site
    }
}
