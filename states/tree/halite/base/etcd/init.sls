{#- An etcd member, run by the kubelet as a static pod. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/base/etcd/map.jinja' import record with context %}
include:
  - halite.base.etcd.data
  - halite.base.pki.etcd

/var/lib/etcd:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'
    - require:
        - etcd: etcd-data

# The kubelet watches this directory and restarts the pod after a change.
/etc/kubernetes/manifests/etcd.yaml:
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
        - file: /var/lib/etcd
        - sls: halite.base.pki.etcd

# From now on this host does not start an empty etcd (halite.base.etcd.data).
{{ record }}:
  file.managed:
    - contents: {{ {'member': node.name} | json | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - onlyif: ls /var/lib/etcd/member/wal/*.wal >/dev/null 2>&1
