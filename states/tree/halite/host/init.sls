# A host that is ready for Kubernetes.
include:
  - halite.host.mounts
  - halite.host.repository
  - halite.host.packages
  - halite.host.kernel
  - halite.host.swap
  - halite.host.local_proxy
  - halite.host.hosts
  - halite.host.trust
  - halite.host.time
  - halite.host.firewall
  - halite.host.keepalived
