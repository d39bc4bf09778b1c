{#- CAs and certificates of a control-plane host. Names, subjects and lifetimes are kubeadm's
    (cmd/kubeadm/app/phases/certs/certlist.go). -#}
{%- from 'halite/map.jinja' import node, roles with context %}
{%- from 'halite/etcd.jinja' import etcd_is_external with context %}
{%- from 'halite/base/map.jinja' import kubeadm with context %}
{%- from 'halite/base/pki/signer.jinja' import is_rotated, signer_file with context %}
{%- set domain = pillar.halite.cluster.domain %}
{%- set api = pillar.halite.apiServer %}
{%- set names = namespace(dns=[node.name, 'kubernetes', 'kubernetes.default', 'kubernetes.default.svc',
                               'kubernetes.default.svc.' ~ domain, api.endpoint],
                          ip=[pillar.halite.networks.apiServiceIP, node.controlPlane]) %}
{%- for san in api.certSANs %}
{%-   if san | is_ip %}{% set names.ip = names.ip + [san] %}{% else %}{% set names.dns = names.dns + [san] %}{% endif %}
{%- endfor %}
include:
  - halite.base.pki.kubernetes_ca

# With this key the controller-manager signs certificates of nodes and other requests by the API.
/etc/kubernetes/pki/ca.key:
  file.managed:
    - contents: {{ pillar.halite.pki.kubernetes.key | json }}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - show_changes: False
    - require:
        - file: /etc/kubernetes/pki

{%- if is_rotated %}

# The controller-manager signs with exactly one certificate, and ca.crt has two while the CA is
# rotated.
{{ signer_file }}:
  file.managed:
    - contents: {{ pillar.halite.pki.kubernetes.signer | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/kubernetes/pki
{%- endif %}

/etc/kubernetes/pki/front-proxy-ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki['front-proxy'].cert | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/kubernetes/pki

/etc/kubernetes/pki/front-proxy-ca.key:
  file.managed:
    - contents: {{ pillar.halite.pki['front-proxy'].key | json }}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - show_changes: False
    - require:
        - file: /etc/kubernetes/pki

# Service-account tokens are signed with sa.key and verified with sa.pub.
/etc/kubernetes/pki/sa.key:
  file.managed:
    - contents: {{ pillar.halite.pki.sa.key | json }}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - show_changes: False
    - require:
        - file: /etc/kubernetes/pki

/etc/kubernetes/pki/sa.pub:
  file.managed:
    - contents: {{ pillar.halite.pki.sa.pub | json }}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - require:
        - file: /etc/kubernetes/pki

/etc/kubernetes/pki/apiserver.crt:
  x509.certificate:
    - ca: kubernetes
    - ca_certificate: {{ pillar.halite.pki.kubernetes.cert | json }}
    - common_name: kube-apiserver
    - sans_dns: {{ names.dns | unique | sort | json }}
    - sans_ip: {{ names.ip | unique | sort | json }}
    - server_auth: True
    - require:
        - file: /etc/kubernetes/pki

/etc/kubernetes/pki/apiserver-kubelet-client.crt:
  x509.certificate:
    - ca: kubernetes
    - ca_certificate: {{ pillar.halite.pki.kubernetes.cert | json }}
    - common_name: kube-apiserver-kubelet-client
{%- if kubeadm.kubelet_client_group %}
    - organization: ['{{ kubeadm.kubelet_client_group }}']
{%- endif %}
    - client_auth: True
    - require:
        - file: /etc/kubernetes/pki

/etc/kubernetes/pki/front-proxy-client.crt:
  x509.certificate:
    - ca: front-proxy
    - ca_certificate: {{ pillar.halite.pki['front-proxy'].cert | json }}
    - common_name: front-proxy-client
    - client_auth: True
    - require:
        - file: /etc/kubernetes/pki

{%- if 'etcd' not in roles %}

# Access to an etcd on other hosts, in the files that kubeadm's documentation names for it.
/etc/kubernetes/pki/etcd:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
    - require:
        - file: /etc/kubernetes/pki

/etc/kubernetes/pki/etcd/ca.crt:
  file.managed:
    - contents: {{ (pillar.halite.etcd.external.ca if etcd_is_external else pillar.halite.pki.etcd.cert) | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/kubernetes/pki/etcd
{%- endif %}
{%- if etcd_is_external %}

# Certificate and key as given by the operator.
/etc/kubernetes/pki/apiserver-etcd-client.crt:
  file.managed:
    - contents: {{ pillar.halite.etcd.external.certificate | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/kubernetes/pki

/etc/kubernetes/pki/apiserver-etcd-client.key:
  file.managed:
    - contents: {{ pillar.halite.etcd.external.key | json }}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - show_changes: False
    - require:
        - file: /etc/kubernetes/pki
{%- else %}

/etc/kubernetes/pki/apiserver-etcd-client.crt:
  x509.certificate:
    - ca: etcd
    - ca_certificate: {{ pillar.halite.pki.etcd.cert | json }}
    - common_name: kube-apiserver-etcd-client
    - client_auth: True
    - require:
        - file: /etc/kubernetes/pki
{%- endif %}
