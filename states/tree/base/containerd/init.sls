# The container runtime, with the bundle as its only registry.
include:
  - host.repository
  - host.packages

/etc/containerd/config.toml:
  file.managed:
    - source: salt://base/containerd/config.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
    - require:
        - pkg: host-packages

# Read at every pull: no restart needed.
/etc/containerd/certs.d/_default/hosts.toml:
  file.managed:
    - source: salt://base/containerd/hosts.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True

containerd:
  service.running:
    - enable: True
    - require:
        - pkg: host-packages
        - file: /etc/containerd/certs.d/_default/hosts.toml
    - watch:
        - file: /etc/containerd/config.toml
