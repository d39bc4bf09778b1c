//! The routes behind the table: each call is authorised and its size limited before a service
//! receives it.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Either, Limited};
use hyper::body::{Bytes, Incoming};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt as _;

use super::in_flight::{Counted, InFlight, Share};
use super::limits;
use super::peer::{Peer, PeerPolicy};
use crate::authz::{Verdict, judge};
use crate::identity::IdentityKind;

/// Authorises each call by the table before a service receives it, and adds the caller to the
/// request.
#[derive(Clone)]
pub(super) struct AuthorisedRoutes {
    pub(super) peer: Peer,
    pub(super) policy: Arc<dyn PeerPolicy>,
    pub(super) routes: Routes,
    pub(super) in_flight: Arc<InFlight>,
}

impl AuthorisedRoutes {
    /// The caller with its present role: the policy may have changed since the last call.
    fn peer_now(&self) -> Peer {
        let caller = self.peer.caller.as_ref();
        Peer {
            role: caller.and_then(|caller| self.policy.role(caller)),
            ..self.peer.clone()
        }
    }
}

/// The verdict of the table, as an answer to the caller.
#[allow(
    clippy::result_large_err,
    reason = "tonic's own error type, as its services return it"
)]
fn authorise(peer: &Peer, path: &str) -> Result<(), Status> {
    let kind = peer.caller.as_ref().map(|caller| caller.identity.kind());
    match judge(path, kind, peer.role) {
        Verdict::Allowed => Ok(()),
        Verdict::NeedsIdentity(IdentityKind::Minion) => Err(Status::unauthenticated(
            "this needs a minion's certificate: enrol first",
        )),
        Verdict::NeedsIdentity(kind) => Err(Status::unauthenticated(format!(
            "this needs the certificate of {kind}"
        ))),
        Verdict::NeedsRole(role) => {
            let method = path.rsplit('/').next().unwrap_or(path);
            Err(peer.lacks(role, method))
        }
        Verdict::Forbidden => Err(Status::permission_denied(format!(
            "{} may not call {path}",
            peer.name()
        ))),
        Verdict::Unknown => Err(Status::unimplemented("this method does not exist")),
    }
}

/// A body that holds its request's share until it has ended.
fn held_with(
    body: Body,
    share: Option<Arc<Share>>,
) -> impl hyper::body::Body<Data = Bytes, Error = Status> + Send + 'static {
    body.map_frame(move |frame| {
        let _held = &share;
        frame
    })
}

impl hyper::service::Service<Request<Incoming>> for AuthorisedRoutes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let peer = self.peer_now();
        if let Err(status) = authorise(&peer, request.uri().path()) {
            self.policy
                .refused(&peer, request.uri().path(), status.message());
            return Box::pin(std::future::ready(Ok(status.into_http())));
        }
        let allowance = limits::allowance(&peer, request.uri().path());
        let share = allowance.map(|allowance| Share::new(Arc::clone(&self.in_flight), allowance));
        request.extensions_mut().insert(peer);
        let request = match limits::body(request.uri().path()) {
            Some(most) => request.map(|body| Either::Left(Limited::new(body, most))),
            None => request.map(Either::Right),
        };
        let request = match share.clone() {
            Some(share) => request.map(|body| Either::Left(Counted::new(body, share))),
            None => request.map(Either::Right),
        };
        let routes = self.routes.clone();
        Box::pin(async move {
            let answer = routes.oneshot(request).await;
            Ok(answer.map_or_else(
                |error| Status::internal(error.to_string()).into_http(),
                |answer| answer.map(|body| Body::new(held_with(body, share))),
            ))
        })
    }
}
