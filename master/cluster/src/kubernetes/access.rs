//! Access to the API: a client with administrator certificates that the kubernetes CA signs in
//! memory.

use std::net::Ipv4Addr;
use std::sync::Arc;

use halite_core::app::App;
use halite_core::ca::{Cas, Profile};
use halite_core::declared::{Snapshot, in_background};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_names::NodeName;
use halite_pillar::declaration::Declaration;
use halite_pillar::view::{API_PORT, api_addresses};
use halite_proto::pki::PrivateKey;
use halite_store::Millis;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::addresses::{Address, Addresses};
use super::client::{Access, Identity, KubeApi};
use super::{Api, ApiError};
use crate::etcd::Etcd;

/// The time for which an administrator certificate is used; it is valid for a day.
const RENEW_AFTER: Millis = 12 * 60 * 60 * 1000;

/// Creates the client and caches it.
pub struct Clusters {
    app: Arc<App>,
    etcd: Etcd,
    current: Mutex<Option<Current>>,
}

struct Current {
    /// Digest of the client's configuration: other addresses or another CA need another client.
    made_for: [u8; 32],
    made: Millis,
    api: Arc<dyn Api>,
    servers: Vec<ApiServer>,
}

/// The API server of one host, at the host's own address.
#[derive(Clone)]
pub struct ApiServer {
    /// The host.
    pub host: NodeName,
    /// The client for it.
    pub api: Arc<dyn Api>,
}

impl Clusters {
    /// Creates the access without a client.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
        Self {
            etcd: Etcd::new(Arc::clone(&app)),
            app,
            current: Mutex::default(),
        }
    }

    /// Uses this API from now on, whatever is declared. For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_api(app: Arc<App>, api: Arc<dyn Api>) -> Self {
        let current = Current {
            made_for: [0; 32],
            made: Millis::MAX,
            api,
            servers: Vec::new(),
        };
        Self {
            etcd: Etcd::new(Arc::clone(&app)),
            app,
            current: Mutex::new(Some(current)),
        }
    }

    /// Uses this API as the API server of each of these hosts. For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_servers(mut self, hosts: &[&str]) -> Self {
        if let Some(current) = self.current.get_mut() {
            let hosts = hosts.iter().filter_map(|host| host.parse().ok());
            let server = |host| ApiServer {
                host,
                api: Arc::clone(&current.api),
            };
            current.servers = hosts.map(server).collect();
        }
        self
    }

    /// Uses these members of etcd. For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_etcd(mut self, etcd: Etcd) -> Self {
        self.etcd = etcd;
        self
    }

    /// The members of etcd, which stores the cluster's objects.
    #[must_use]
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// The API of the declared cluster, whatever bundle is in use.
    ///
    /// # Errors
    /// The declaration names no first host, or the certificates cannot be created. An unreachable
    /// API is not an error here.
    pub async fn api(&self, snapshot: &Snapshot) -> Result<Arc<dyn Api>, Refusal> {
        self.with_current(snapshot, |current| Arc::clone(&current.api))
            .await
    }

    /// The API server of each control plane that has joined.
    ///
    /// # Errors
    /// The same as for [`Clusters::api`].
    pub async fn servers(&self, snapshot: &Snapshot) -> Result<Vec<ApiServer>, Refusal> {
        self.with_current(snapshot, |current| current.servers.clone())
            .await
    }

    async fn with_current<T>(
        &self,
        snapshot: &Snapshot,
        take: impl FnOnce(&Current) -> T,
    ) -> Result<T, Refusal> {
        let declaration = snapshot.declaration();
        let addresses =
            api_addresses(declaration).map_err(|error| Refusal::invalid(chain(&error)))?;
        let hosts = server_addresses(declaration);
        let (server_name, port) = (declaration.cluster.endpoint(), API_PORT);
        let ca = self
            .app
            .cas
            .certificate_pem("kubernetes")
            .map_err(|error| Refusal::internal(chain(&error)))?;
        let made_for = format!("{addresses:?}\n{hosts:?}\n{port}\n{server_name}\n{ca}");
        let made_for = Sha256::digest(made_for).into();
        let now = self.app.clock.now();
        let mut current = self.current.lock().await;
        if let Some(current) = current.as_ref()
            && (current.made == Millis::MAX
                || (current.made_for == made_for && now - current.made < RENEW_AFTER))
        {
            return Ok(take(current));
        }
        let (cas, ca) = (Arc::clone(&self.app.cas), ca.to_owned());
        let made = in_background(move || {
            let access = Access {
                port,
                server_name,
                ca,
                // These are kubeadm's admin.conf and super-admin.conf.
                admin: identity(&cas, "kubernetes-admin", "kubeadm:cluster-admins", now)?,
                super_admin: identity(&cas, "kubernetes-super-admin", "system:masters", now)?,
            };
            let failed = |error: ApiError| Refusal::internal(chain(&error));
            let api = each_address(&access, &addresses).map_err(failed)?;
            let server = |(host, address): (NodeName, Ipv4Addr)| {
                let api = Arc::new(KubeApi::new(&access, address)?);
                Ok(ApiServer { host, api })
            };
            let servers: Result<_, ApiError> = hosts.into_iter().map(server).collect();
            Ok((api, servers.map_err(failed)?))
        });
        let (api, servers) = made.await?;
        let made = Current {
            made_for,
            made: now,
            api: Arc::new(api),
            servers,
        };
        Ok(take(current.insert(made)))
    }
}

/// The hosts with an API server, with their own addresses.
fn server_addresses(declaration: &Declaration) -> Vec<(NodeName, Ipv4Addr)> {
    let planes = (declaration.nodes.iter()).filter(|(_, node)| node.serves_api());
    planes
        .filter_map(|(name, node)| Some((name.clone(), node.control_plane()?)))
        .collect()
}

/// Creates one client for all addresses.
fn each_address(access: &Access, addresses: &[Ipv4Addr]) -> Result<Addresses<KubeApi>, ApiError> {
    let one = |address: &Ipv4Addr| {
        let api = KubeApi::new(access, *address)?;
        let endpoint = api.endpoint().to_owned();
        Ok(Address { endpoint, api })
    };
    let apis: Result<Vec<_>, ApiError> = addresses.iter().map(one).collect();
    Ok(Addresses::new(apis?))
}

fn identity(cas: &Cas, user: &str, group: &str, now: Millis) -> Result<Identity, Refusal> {
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::internal(format!(
            "cannot make the administrator certificate for the Kubernetes API: {error}"
        ))
    };
    let key = PrivateKey::generate().map_err(|e| failed(&e))?;
    let request = key.request(user).map_err(|e| failed(&e))?;
    let profile = Profile {
        common_name: user.to_owned(),
        organization: vec![group.to_owned()],
        client_auth: true,
        days: 1,
        ..Profile::default()
    };
    let issued = cas
        .sign("kubernetes", &request, &profile, now)
        .map_err(|e| failed(&e))?;
    Ok(Identity {
        certificate: issued.certificate_pem,
        key: key.to_pem(),
    })
}
