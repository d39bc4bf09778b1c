{#- An etcd member that runs as declared. -#}
{%- from 'halite/etcd.jinja' import etcd_is_service with context %}
{%- from 'halite/base/etcd/map.jinja' import manifest, metrics, programs, unit, version with context %}

{#- Whether the member may have to wait for other members. -#}
{%- set ns = namespace(members=0) %}
{%- for name, other in pillar.halite.nodes | items if 'etcd' in other.roles %}
{%- set ns.members = ns.members + 1 %}
{%- endfor %}
{%- set peers = ns.members > 1 %}
include:
  - halite.base.etcd.member

# A member that does not start with a new manifest or unit gets its old one back, and the run stops,
# so that the next member is not stopped too. etcd reloads its certificates, but no CA.
etcd-ready:
{%- if etcd_is_service %}
  unit.ready:
    - name: etcd
{%- else %}
  static_pod.running:
    - manifest: {{ manifest }}
{%- endif %}
    - ready: {{ metrics }}/readyz
    - live: {{ metrics }}/livez
    - quorum: {{ peers }}
    - reads:
        - /etc/kubernetes/pki/etcd/ca.crt
    - failhard: True
    - watch:
{%- if etcd_is_service %}
        - service: etcd

# The programs of other versions, to which no unit can be reverted any more.
etcd-other-programs:
  cmd.run:
    - name: find {{ programs }} -mindepth 1 -maxdepth 1 ! -name {{ version }} -exec rm -rf {} +
    - onlyif: find {{ programs }} -mindepth 1 -maxdepth 1 ! -name {{ version }} | grep -q .
    - require:
        - unit: etcd-ready
{%- else %}
        - file: {{ manifest }}
{%- endif %}
