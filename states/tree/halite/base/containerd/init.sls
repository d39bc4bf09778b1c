{%- from 'halite/base/containerd/hosts.jinja' import proxy_drop_in with context %}
{%- from 'halite/base/map.jinja' import is_replaced with context %}
# The container runtime, with the bundle as its only registry unless others are declared.
include:
  - halite.host.repository
  - halite.host.packages
  - halite.host.trust
  - halite.base.containerd.servers

/etc/containerd/config.toml:
  file.managed:
    - source: salt://halite/base/containerd/config.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

# containerd is the only program on a host that connects to servers outside the site.
/etc/systemd/system/containerd.service.d/halite-proxy.conf:
{%- if pillar.halite.proxy.http or pillar.halite.proxy.https %}
  file.managed:
    - contents: {{ proxy_drop_in() | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
{%- else %}
  file.absent: []
{%- endif %}

containerd:
  service.running:
    - enable: True
    - unmask: True
    - only_drop_ins: [halite-proxy.conf]
    - require:
        - pkg: host-packages
        - file: /etc/containerd/certs.d/_default/hosts.toml
    - watch:
        - file: /etc/containerd/config.toml
        - file: /etc/systemd/system/containerd.service.d/halite-proxy.conf
        # containerd reads the host's trust store only at its start.
        - cmd: trust-store
        - cmd: trust-store-whole

# A package is replaced while the old program keeps running. Containers do not notice the restart.
containerd-program:
  cmd.run:
    - name: systemctl restart containerd.service
    - onlyif: {{ is_replaced('containerd.service') | json }}
    - require:
        - service: containerd

# containerd keeps running when its CRI plugin cannot be loaded (one wrong key in its configuration
# is enough), and the kubelet would retry forever. This state fails instead, with the reason.
# `unless` also succeeds while containerd is stopped: a test run has not started it, and a real run
# started it in the previous state.
{%- set answers = "ctr plugins ls | grep -Eq '^io.containerd.grpc.v1 +cri .* ok *$'" %}
containerd-answers:
  cmd.run:
    - name: >-
        for _ in $(seq 120); do {{ answers }} && exit 0; sleep 0.5; done;
        echo 'containerd runs, but its CRI does not answer: `ctr plugins ls` shows what could not be loaded, `journalctl -u
        containerd` says why; keys of its configuration come from containerd.config in the cluster document' >&2; exit 1
    - unless: {{ ('! systemctl --quiet is-active containerd || ' ~ answers) | json }}
    - require:
        - cmd: containerd-program
