include:
  - halite.base.kubeadm_objects

metrics-server:
  kubernetes.manifest:
    - source: salt://halite/addons/metrics_server/components.yaml.j2
    - template: jinja
    - set: metrics-server
    - require:
        - kubernetes: api-ready
