//! The settings in force: those that the document declares, and those of its profile where it says
//! nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::api_hardening::{ApiAudit, ApiEncryption, PodSecurity};
use crate::cluster::Cluster;
use crate::flags::Flags;
use crate::profile::HardeningProfile;

/// The kernel parameters that a kubelet with `protectKernelDefaults` requires
/// (pkg/kubelet/cm/container_manager_linux.go, `setupKernelTunables`).
pub(crate) const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("kernel.keys.root_maxbytes", "25000000"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
];

impl Cluster {
    /// Returns whether the profile is `hardened`.
    #[must_use]
    pub fn is_hardened(&self) -> bool {
        self.profile == HardeningProfile::Hardened
    }

    /// The audit log: the declared one, or else the profile's.
    #[must_use]
    pub fn audit(&self) -> Option<Cow<'_, ApiAudit>> {
        self.declared_or_hardened(self.api_server.audit.as_ref())
    }

    /// The encryption of objects in etcd: the declared one, or else the profile's.
    #[must_use]
    pub fn encryption(&self) -> Option<Cow<'_, ApiEncryption>> {
        self.declared_or_hardened(self.api_server.encryption.as_ref())
    }

    /// The Pod Security Standard: the declared one, or else the profile's.
    #[must_use]
    pub fn pod_security(&self) -> Option<Cow<'_, PodSecurity>> {
        self.declared_or_hardened(self.api_server.admission.pod_security.as_ref())
    }

    fn declared_or_hardened<'a, T: Clone + Default>(
        &self,
        declared: Option<&'a T>,
    ) -> Option<Cow<'a, T>> {
        declared
            .map(Cow::Borrowed)
            .or_else(|| self.is_hardened().then(|| Cow::Owned(T::default())))
    }

    /// The profile's flags of the API server.
    pub(crate) fn api_server_profile(&self) -> Flags {
        let mut flags = self.profiling_off();
        if self.is_hardened() {
            // Each kubelet has a certificate of this authority for its server then.
            flags.insert(
                "kubelet-certificate-authority".to_owned(),
                "/etc/kubernetes/pki/ca.crt".into(),
            );
            // Clients read a pod's token again before it expires. By default the API server accepts
            // it for a year, for clients that do not.
            flags.insert(
                "service-account-extend-token-expiration".to_owned(),
                "false".into(),
            );
        }
        flags
    }

    /// The profile's flags of the controller manager and the scheduler.
    pub(crate) fn profiling_off(&self) -> Flags {
        let off = ("profiling".to_owned(), "false".into());
        self.is_hardened().then_some(off).into_iter().collect()
    }

    /// Fields over the kubelet's configuration: the profile's, with the declared ones over them.
    pub(crate) fn kubelet_config(&self) -> Cow<'_, Map<String, Value>> {
        let declared = &self.kubelet.config;
        if !self.is_hardened() {
            return Cow::Borrowed(declared);
        }
        let mut config = Map::from_iter([
            ("protectKernelDefaults".to_owned(), json!(true)),
            // The kubelet's default, which the benchmark wants to see.
            ("streamingConnectionIdleTimeout".to_owned(), json!("4h0m0s")),
        ]);
        config.extend(declared.clone());
        Cow::Owned(config)
    }

    /// The kernel parameters of nodes: the profile's, with the declared ones over them.
    pub(crate) fn node_sysctls(&self) -> Cow<'_, BTreeMap<String, Option<String>>> {
        let declared = &self.host.sysctls;
        if self.kubelet_config().get("protectKernelDefaults") != Some(&json!(true))
            || !self.is_hardened()
        {
            return Cow::Borrowed(declared);
        }
        let own = KUBELET_SYSCTLS.iter();
        let mut sysctls: BTreeMap<String, Option<String>> = own
            .map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())))
            .collect();
        sysctls.extend(declared.clone());
        Cow::Owned(sysctls)
    }
}
