# A bare host becomes one that Kubernetes can live on.
include:
  - host.repository
  - host.packages
  - host.kernel
  - host.swap
  - host.hosts
  - host.trust
  - host.time
  - host.firewall
  - host.keepalived
