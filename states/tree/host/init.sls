# A bare host becomes one that Kubernetes can live on.
include:
  - host.repository
  - host.packages
  - host.kernel
  - host.swap
  - host.hosts
  - host.firewall
  - host.keepalived
