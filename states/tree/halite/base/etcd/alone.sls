{#- The last member of etcd makes a cluster of itself (`ctl etcd recover`): etcd is started once with the flag for it. halite.base.etcd
    takes the flag away again. -#}
{%- from 'halite/base/etcd/map.jinja' import metrics with context %}

/etc/kubernetes/manifests/etcd.yaml:
  file.managed:
    - source: salt://halite/base/etcd/etcd.yaml.j2
    - template: jinja
    - context: {alone: True}
    - user: root
    - group: root
    - mode: '0600'
    - force: True

etcd-alone:
  static_pod.running:
    - manifest: /etc/kubernetes/manifests/etcd.yaml
    - ready: {{ metrics }}/readyz
    - live: {{ metrics }}/livez
    - failhard: True
    - watch:
        - file: /etc/kubernetes/manifests/etcd.yaml
