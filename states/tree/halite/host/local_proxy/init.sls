{#- A proxy on this host between the API's name, which resolves to 127.0.0.1, and all control
    planes. TLS is passed through: no certificate and no kubeconfig file refers to the proxy. -#}
{%- from 'halite/cluster.jinja' import has_local_proxy with context %}
include:
  - halite.host.packages
{%- if has_local_proxy %}

/etc/haproxy/kubernetes-ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki.kubernetes.cert | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

/etc/haproxy/haproxy.cfg:
  file.managed:
    - source: salt://halite/host/local_proxy/haproxy.cfg.j2
    - template: jinja
    - check_cmd: haproxy -c -f
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/haproxy/kubernetes-ca.crt

haproxy:
  service.running:
    - enable: True
    - unmask: True
    # A reload keeps existing connections.
    - reload: True
    - watch:
        - file: /etc/haproxy/haproxy.cfg
        - file: /etc/haproxy/kubernetes-ca.crt
{%- else %}

# Stops haproxy if it has Halite's configuration. Any other configuration stays.
haproxy:
  service.dead:
    - enable: False
    - onlyif: grep -q '^# Written by Halite' /etc/haproxy/haproxy.cfg

/etc/haproxy/haproxy.cfg:
  file.absent:
    - onlyif: grep -q '^# Written by Halite' /etc/haproxy/haproxy.cfg
    - require:
        - service: haproxy

/etc/haproxy/kubernetes-ca.crt:
  file.absent:
    - require:
        - file: /etc/haproxy/haproxy.cfg
{%- endif %}
