{#- `ctl` for root on each control-plane host, with an identity of that host: its key is made there,
    and its operator `root@HOST` ends with the host. Root on the master's host has the identity that
    `halite-master init` makes (halite.services.master). -#}
{%- from 'halite/map.jinja' import node, has_master with context %}
{%- set master = pillar.halite.master %}
include:
  - halite.services.ctl

# The masters in the order in which `ctl` tries them.
/etc/halite/masters:
  file.managed:
    - contents: |
        # Written by Halite.
{%- for address in master.masters %}
        {{ '127.0.0.1:' ~ master.port if has_master and loop.first else address }}
{%- endfor %}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
{%- if not has_master %}
{%-   set operator = '/etc/halite/operator' %}
{%-   set name = 'root@' ~ node.name %}

{{ operator }}:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'

{{ operator }}/ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki.halite.cert | json }}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - require:
        - file: {{ operator }}

# The master signs this name only for this host.
{{ operator }}/operator.crt:
  x509.certificate:
    - ca: halite
    - ca_certificate: {{ pillar.halite.pki.halite.cert | json }}
    - common_name: {{ name | json }}
    - organization: ['halite:operator']
    - sans_uri: ['halite://{{ pillar.halite.cluster.name }}/operator/{{ name }}']
    - client_auth: True
    - mode: '0600'
    - require:
        - file: {{ operator }}/ca.crt
{%- endif %}
