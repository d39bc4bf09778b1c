//! The site that most tests use.

use halite_testkit::{SharedSite, Site, SiteCopy};

/// A site with its bundle in the directory `bundle`.
pub fn built() -> SiteCopy {
    static BUILT: SharedSite = SharedSite::new();
    BUILT.copy(|| {
        let site = Site::new();
        site.build("bundle").unwrap();
        site
    })
}
