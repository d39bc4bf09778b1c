//! The preview of a promotion shows its effect and changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::promotion::{forced, pair, promote};
use super::*;
use crate::promote::{
    Boundary, CheckError, PromoteError, Promoted, Promotion, PromotionEffect, PromotionPreview,
    PromotionRequest, Unit,
};

struct Unused;

impl Unit for Unused {
    fn stop(&self) -> io::Result<()> {
        unreachable!("a preview changes nothing")
    }

    fn start(&self) -> io::Result<()> {
        unreachable!("a preview changes nothing")
    }
}

/// The content of all files below a directory.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

/// The preview of a promotion, which must change no file.
async fn preview(
    host: &MasterHost,
    wanted: &PromotionRequest,
) -> Result<PromotionPreview, PromoteError> {
    let before = contents(host.directory.path());
    let promotion = Promotion::new(&host.config, host.directory.path(), &SystemClock, &Unused);
    let preview = promotion.preview(wanted).await;
    assert!(before == contents(host.directory.path()), "a file changed");
    preview
}

/// The effect of a promotion that needs no `--force`.
async fn effect(host: &MasterHost) -> PromotionEffect {
    let preview = preview(host, &PromotionRequest::default()).await.unwrap();
    assert!(preview.refusals.is_empty(), "{:?}", preview.refusals);
    preview.effect
}

#[tokio::test]
async fn a_preview_shows_the_effect_of_a_promotion_and_changes_nothing() {
    let host = MasterHost::new();
    let error = preview(&host, &PromotionRequest::default()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, PromoteError::NoStandby(_)), "{error}");

    let (_master, store, standby) = pair().await;
    // A part of a commit, which a promotion would cut off.
    let log = directory(&standby.config).join("copy-1/store.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(&[7; 500]);
    fs::write(&log, &bytes).unwrap();
    assert_eq!(effect(&standby).await, PromotionEffect::Promotes);
    promote(&standby, &forced(), Some(Boundary::Files))
        .await
        .unwrap_err();
    assert_eq!(effect(&standby).await, PromotionEffect::Resumes);
    let done = promote(&standby, &forced(), None).await.unwrap();
    assert_eq!(done, Promoted::Done(2));
    assert_eq!(effect(&standby).await, PromotionEffect::Nothing);
    store.close().await;
}

#[tokio::test]
async fn a_preview_refuses_a_copy_of_a_newer_program_even_with_force() {
    let (master, store, standby) = pair().await;
    store.record_unknown_migration().await;
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    link.cut().await;
    for wanted in [PromotionRequest::default(), forced()] {
        let error = preview(&standby, &wanted).await.unwrap_err();
        assert!(
            matches!(error, PromoteError::Newer { last: 1000, .. }),
            "{error}"
        );
    }
    store.close().await;
}

#[tokio::test]
async fn a_preview_names_the_damage_of_a_copy_that_only_force_promotes() {
    let (_master, store, standby) = pair().await;
    fs::remove_file(directory(&standby.config).join("copy-1/files/state/ca/halite.key")).unwrap();
    for wanted in [PromotionRequest::default(), forced()] {
        let preview = preview(&standby, &wanted).await.unwrap();
        let [PromoteError::Check(damaged @ CheckError::Damaged { .. })] =
            preview.refusals.as_slice()
        else {
            panic!("{:?}", preview.refusals)
        };
        let text = damaged.to_string();
        assert!(text.contains("state/ca/halite.key is missing"), "{text}");
    }
    let other = PromotionRequest {
        cluster: Some("other".to_owned()),
        ..forced()
    };
    let error = preview(&standby, &other).await.unwrap_err();
    assert!(error.to_string().contains("--cluster prod"), "{error}");
    store.close().await;
}
