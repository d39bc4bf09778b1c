# The objects that `kubeadm init` makes: its configuration, which `kubeadm join`, `upgrade` and
# `certs` read, and the RBAC rules for nodes, joining hosts and administrators.
include:
  - halite.base.kubeadm_objects.ahead

kubeadm-rbac:
  kubernetes.manifest:
    - source: salt://halite/base/kubeadm_objects/rbac.yaml.j2
    - template: jinja
    - whole: True
    - require:
        - kubernetes: api-ready

kubeadm-configuration:
  kubernetes.manifest:
    - source: salt://halite/base/kubeadm_objects/configuration.yaml.j2
    - template: jinja
    - whole: True
    - require:
        - kubernetes: api-ready

# Not compared whole: the bootstrap signer adds a signature for each token.
cluster-info:
  kubernetes.manifest:
    - source: salt://halite/base/kubeadm_objects/cluster-info.yaml.j2
    - template: jinja
    - require:
        - kubernetes: api-ready
