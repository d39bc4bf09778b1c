//! A registry in this process: the pull half of the distribution protocol, with logins.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use halite_durable::Digest;
use halite_testkit::registry::Content;
use halite_testkit::{Authority, CannedAnswer, SeenRequest, Server};
use serde_json::json;

/// The media type of Docker's list of manifests.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The login that the registry requires.
#[derive(Clone, Copy, PartialEq)]
pub enum Access {
    Open,
    /// User `me`, password `secret`.
    Basic,
    /// A token that is valid for this many requests.
    Token(usize),
}

/// The registry's response to every path except `/token`.
fn pull(content: &Content, seen: &SeenRequest) -> CannedAnswer {
    let path = seen.path.trim_start_matches("/v2/");
    if let Some((name, reference)) = path.split_once("/manifests/") {
        let accepted = seen.header("Accept").unwrap_or_default();
        return match content.manifests.get(&format!("{name}/{reference}")) {
            Some((kind, _)) if !accepted.contains(kind) => CannedAnswer::new(406),
            Some((kind, bytes)) => {
                let digest = Digest::of(bytes).oci();
                CannedAnswer::new(200)
                    .header("Content-Type", kind)
                    .header("Docker-Content-Digest", digest)
                    .body(bytes.as_slice())
            }
            None => CannedAnswer::new(404).body(r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
        };
    }
    let blob = path
        .split_once("/blobs/")
        .and_then(|(_, digest)| content.blobs.get(digest));
    blob.map_or_else(
        || CannedAnswer::new(404),
        |bytes| CannedAnswer::file(seen, bytes, "\"x\""),
    )
}

/// Starts a registry with TLS; `change` may replace a response.
pub fn start(
    authority: &Authority,
    content: Content,
    access: Access,
    change: impl Fn(&SeenRequest, CannedAnswer) -> CannedAnswer + Send + Sync + 'static,
) -> Server {
    let (tokens, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let port = Arc::new(Mutex::new(String::new()));
    let address = Arc::clone(&port);
    let server = Server::tls(authority, move |seen| {
        let given = seen.header("Authorization").unwrap_or_default();
        let login = given == "Basic bWU6c2VjcmV0";
        if seen.path.starts_with("/token?") {
            let Access::Token(count) = access else {
                return CannedAnswer::new(404);
            };
            let asked =
                seen.path.contains("service=r") && seen.path.contains("scope=repository%3A");
            if !login || !asked {
                return CannedAnswer::new(401).body("wrong login");
            }
            left.store(count, Ordering::SeqCst);
            let token = tokens.fetch_add(1, Ordering::SeqCst) + 1;
            return CannedAnswer::new(200)
                .body(json!({"token": format!("token-{token}")}).to_string());
        }
        let denied =
            |challenge: String| CannedAnswer::new(401).header("WWW-Authenticate", challenge);
        match access {
            Access::Basic if !login => return denied("Basic realm=\"r\"".into()),
            Access::Token(_) => {
                let name = seen
                    .path
                    .trim_start_matches("/v2/")
                    .split_once("/manifests/")
                    .or_else(|| seen.path.trim_start_matches("/v2/").split_once("/blobs/"));
                let scope = name.map_or("", |(name, _)| name);
                let realm = address.lock().unwrap().clone();
                let current = format!("Bearer token-{}", tokens.load(Ordering::SeqCst));
                let spent = left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        left.checked_sub(1)
                    })
                    .is_err();
                if given != current || spent {
                    return denied(format!(
                        "Bearer realm=\"{realm}\",service=\"r\",scope=\"repository:{scope}:pull\""
                    ));
                }
            }
            _ => {}
        }
        change(seen, pull(&content, seen))
    });
    *port.lock().unwrap() = server.url("/token");
    server
}
