include:
  - halite.base.kubeadm_objects

coredns-configuration:
  kubernetes.manifest:
    - source: salt://halite/base/coredns/configuration.yaml.j2
    - template: jinja
    - whole: True
    - require:
        - kubernetes: api-ready

coredns:
  kubernetes.manifest:
    - source: salt://halite/base/coredns/coredns.yaml.j2
    - template: jinja
    - require:
        - kubernetes: coredns-configuration
