include:
  - halite.base.kubeadm_objects

local-path:
  kubernetes.manifest:
    - source: salt://halite/addons/local_path/local-path-storage.yaml.j2
    - template: jinja
    - set: local-path
    - require:
        - kubernetes: api-ready
