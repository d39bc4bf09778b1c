{#- A member as a static pod. Nothing waits here for it; see halite.base.etcd. -#}
{%- from 'halite/map.jinja' import node, founds_etcd with context %}
{%- from 'halite/etcd.jinja' import etcd_is_dedicated with context %}
{%- from 'halite/base/map.jinja' import api_server_follows_etcd with context %}
{%- from 'halite/base/etcd/map.jinja' import is_own_unit, manifest, programs, runs, unit with context %}
include:
  - halite.base.etcd.data
  - halite.base.pki.etcd

# A member that used to be a unit is stopped first: both use the same data and the same ports. The
# unit is removed last, so that an interrupted run starts over.
etcd-unit-ended:
  cmd.run:
    - name: systemctl disable --now etcd.service && rm -rf {{ programs }} && { rmdir /usr/local/lib/halite 2>/dev/null || true; } && rm -f {{ unit }} && systemctl daemon-reload
    - onlyif: {{ is_own_unit }}

# The kubelet watches this directory and restarts the pod after a change.
{{ manifest }}:
  file.managed:
    - source: salt://halite/base/etcd/etcd.yaml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - makedirs: True
    - dir_mode: '0700'
    - require:
        - cmd: etcd-unit-ended
        - file: /var/lib/etcd
        - sls: halite.base.pki.etcd
{%- if founds_etcd or node.get('etcd') %}
        - etcd: etcd-recorded
{%- else %}
        - test: etcd-not-joined
{%- endif %}
{%- if 'control-plane' in node.roles and not etcd_is_dedicated %}

# The kubelet of this host and its API server, which uses no other member: without this, the kubelet
# starts the new etcd half a minute later.
kube-apiserver-follows-etcd:
  cmd.run:
    - name: {{ api_server_follows_etcd(runs) | json }}
    - onchanges:
        - file: {{ manifest }}
{%- endif %}
