{#- Refuses a host whose etcd member has lost its data, before anything on the host is changed: an
    etcd that starts without its data is a new, empty cluster. -#}
{%- from 'halite/base/etcd/map.jinja' import record with context %}
etcd-data:
  etcd.data:
    - name: /var/lib/etcd
    - record: {{ record }}
    - order: first
    - failhard: True
