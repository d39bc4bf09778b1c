//! Copies that fail: different content, no space for it, endless content.

use super::*;

#[test]
fn a_server_of_another_content_is_not_trusted() {
    let (files, hash) = bundle("0.1.0", b"layer");
    for path in ["manifest.json", "bin/ctl", "images/blobs/sha256/layer"] {
        let host = Host::new();
        let mut served = files.clone();
        served.get_mut(path).unwrap()[0] ^= 1;
        let server = Server::tls(&host.authority, move |seen| answer(&served, seen));
        let from = [server.url("").trim_end_matches('/').to_owned()];
        let error = host.copy("0.1.0", &hash, &from).unwrap_err();
        assert!(
            error.contains(path) && error.contains("expected SHA-256"),
            "{path}: {error}"
        );
        assert!(!host.place("0.1.0").exists(), "{path}");
        // A second, honest server is enough.
        let served = files.clone();
        let honest = Server::tls(&host.authority, move |seen| answer(&served, seen));
        let from = [
            from[0].clone(),
            honest.url("").trim_end_matches('/').to_owned(),
        ];
        host.copy("0.1.0", &hash, &from).unwrap();
        same(&host.place("0.1.0"), &files);
    }
    // A server whose certificate another authority signed is not trusted either, nor is a bundle
    // with the manifest of another version.
    let host = Host::new();
    let other = tempfile::tempdir().unwrap();
    let served = files.clone();
    let stranger = Server::tls(&Authority::new(other.path()), move |seen| {
        answer(&served, seen)
    });
    let error = host
        .copy(
            "0.1.0",
            &hash,
            &[stranger.url("").trim_end_matches('/').to_owned()],
        )
        .unwrap_err();
    assert!(error.contains("no trusted connection"), "{error}");
    let served = files.clone();
    let server = Server::tls(&host.authority, move |seen| answer(&served, seen));
    let from = [server.url("").trim_end_matches('/').to_owned()];
    let error = host.copy("0.9.0", &hash, &from).unwrap_err();
    assert!(error.contains("belongs to 0.1.0, not to 0.9.0"), "{error}");
}

#[test]
fn what_cannot_be_laid_out_leaves_nothing_beside() {
    let host = Host::new();
    // One name is both a file and a directory.
    let (mut files, _) = bundle("0.1.0", b"layer");
    let mut manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    manifest["files"]["states/0.sls/more"] = manifest["files"]["states/1.sls"].clone();
    let text = serde_json::to_vec(&manifest).unwrap();
    let hash = hex(&text);
    files.insert("manifest.json".to_owned(), text);
    files.insert(
        "states/0.sls/more".to_owned(),
        files["states/1.sls"].clone(),
    );
    let server = Server::tls(&host.authority, move |seen| answer(&files, seen));
    host.copy(
        "0.1.0",
        &hash,
        &[server.url("").trim_end_matches('/').to_owned()],
    )
    .unwrap_err();
    assert_eq!(host.names(), [".0.1.0.copy"]);
}

#[test]
fn a_manifest_without_end_fills_no_disk() {
    let host = Host::new();
    let (files, hash) = bundle("0.1.0", &content(2_000_000, 2));
    let size = files["manifest.json"].len();
    let served = files.clone();
    let says = Arc::new(AtomicUsize::new(1));
    let length = Arc::clone(&says);
    let endless = Server::tls(&host.authority, move |seen| {
        let mut answered = served.clone();
        answered
            .get_mut("manifest.json")
            .unwrap()
            .resize(size + 4_000_000, b' ');
        let answer = answer(&answered, seen);
        if length.load(Ordering::SeqCst) == 1 {
            answer
        } else {
            answer.endless()
        }
    });
    let from = [endless.url("").trim_end_matches('/').to_owned()];
    for said in [1, 0] {
        says.store(said, Ordering::SeqCst);
        let error = host
            .copy_up_to(Some(size as u64), "0.1.0", &hash, &from)
            .unwrap_err();
        let wanted = format!(
            "larger than {size} bytes, which cannot be right; the received data was removed"
        );
        assert!(
            error.contains("manifest.json") && error.contains(&wanted),
            "{error}"
        );
        let left = walk(&host.dir.path().join("bundles"));
        assert!(
            left.iter()
                .all(|path| fs::metadata(path).unwrap().len() < 1000),
            "{left:?}"
        );
    }
    // A file whose size is known may be larger.
    let honest = Server::tls(&host.authority, move |seen| answer(&files, seen));
    let from = [
        from[0].clone(),
        honest.url("").trim_end_matches('/').to_owned(),
    ];
    host.copy_up_to(Some(size as u64), "0.1.0", &hash, &from)
        .unwrap();
}
