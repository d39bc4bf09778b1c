{#- The CA and the certificates of an etcd member. Names, subjects and lifetimes are kubeadm's
    (cmd/kubeadm/app/phases/certs/certlist.go). -#}
{%- from 'halite/map.jinja' import node with context %}
include:
  - halite.base.pki.stages

/etc/kubernetes/pki/etcd:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
    - makedirs: True

/etc/kubernetes/pki/etcd/ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki.etcd.cert | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/kubernetes/pki/etcd

{%- if pillar.halite.pki.etcd.key is defined %}

# kubeadm expects the key in this directory, and needs it to renew certificates. A host without a control
# plane has no kubeadm.
/etc/kubernetes/pki/etcd/ca.key:
  file.managed:
    - contents: {{ pillar.halite.pki.etcd.key | json }}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - show_changes: False
    - require:
        - file: /etc/kubernetes/pki/etcd
{%- endif %}
{%- for name in ['server', 'peer'] %}

# Each member is a server and a client of the others.
/etc/kubernetes/pki/etcd/{{ name }}.crt:
  x509.certificate:
    - ca: etcd
    - ca_certificate: {{ pillar.halite.pki.etcd.cert | json }}
    - common_name: {{ node.name | json }}
    - sans_dns: {{ [node.name, 'localhost'] | json }}
    - sans_ip: {{ [node.controlPlane, '127.0.0.1', '::1'] | json }}
    - server_auth: True
    - client_auth: True
    - require:
        - file: /etc/kubernetes/pki/etcd
{%- endfor %}

/etc/kubernetes/pki/etcd/healthcheck-client.crt:
  x509.certificate:
    - ca: etcd
    - ca_certificate: {{ pillar.halite.pki.etcd.cert | json }}
    - common_name: kube-etcd-healthcheck-client
    - client_auth: True
    - require:
        - file: /etc/kubernetes/pki/etcd
