# What `kubeadm init` leaves in the cluster: its configuration, for `kubeadm join`, `upgrade` and `certs`, and the rights
# of nodes, of those who join, and of administrators.
api-ready:
  kubernetes.api_ready:
    - timeout: 300

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
