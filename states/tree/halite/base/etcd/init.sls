# An etcd member, run by the kubelet as a static pod.
include:
  - halite.base.pki.etcd

/var/lib/etcd:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'

# The kubelet watches this directory and restarts the pod after a change.
/etc/kubernetes/manifests/etcd.yaml:
  file.managed:
    - source: salt://halite/base/etcd/etcd.yaml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0600'
    - makedirs: True
    - dir_mode: '0700'
    - require:
        - file: /var/lib/etcd
        - sls: halite.base.pki.etcd
