include:
  - halite.base.kubeadm_objects

flannel:
  kubernetes.manifest:
    - source: salt://halite/base/network/flannel.yaml.j2
    - template: jinja
    - set: flannel
    - require:
        - kubernetes: api-ready
