{#- only: orchestration -#}
{#- Like halite.leave.member, on a host that keeps no control plane: nothing there uses etcd any
    more. -#}
{%- from 'halite/etcd.jinja' import etcd_is_external with context %}
include:
  - halite.leave.member
{%- if not etcd_is_external %}

/etc/kubernetes/pki/etcd:
  file.absent:
    - require:
        - sls: halite.leave.member
{%- endif %}
