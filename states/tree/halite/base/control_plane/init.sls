{#- API server, controller-manager and scheduler as static pods, with the kubeconfig files of these
    programs and of root. Waits only for the API server: the other two need it, and a bootstrap
    continues without them; see halite.base.control_plane.running. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/base/map.jinja' import api_server_gives_way, endpoint_url, local_url with context %}
{%- from 'halite/base/control_plane/keys.jinja' import first_line with context %}
{%- from 'halite/base/etcd/map.jinja' import metrics with context %}
{%- set ca = pillar.halite.pki.kubernetes.cert | json %}
{%- set version = pillar.halite.kubernetes.version %}
{%- set major, minor = version.lstrip('v').split('.')[:2] %}
{%- set newer = "test \"$(sed -n 's/^ *image: .*kube-apiserver:v" ~ major ~ "\\.\\([0-9]*\\)\\..*/\\1/p' /etc/kubernetes/manifests/kube-apiserver.yaml 2>/dev/null | head -n 1)\" -gt " ~ minor ~ " 2>/dev/null" %}
include:
  - halite.base.pki.control_plane
  - halite.base.control_plane.key_stage

# Before anything on the host is changed. A host is recorded with its new bundle at the end of its
# upgrade. An upgrade that stopped before that has left an API server that must not go back.
kube-apiserver-not-newer:
  test.fail_without_changes:
    - comment: >-
        cannot apply the states of Kubernetes {{ version }} to {{ node.name }}: its API server already has a newer minor version, from
        an upgrade that has not ended, and Kubernetes cannot be downgraded. Run the same `ctl upgrade` again; it continues with
        this host.
    - onlyif: {{ newer | json }}
    - order: first
    - failhard: True

{#- File, user, organization, server: cmd/kubeadm/app/phases/kubeconfig/kubeconfig.go. -#}
{%- for file, user, organization, server in [
      ('admin.conf', 'kubernetes-admin', ['kubeadm:cluster-admins'], endpoint_url),
      ('super-admin.conf', 'kubernetes-super-admin', ['system:masters'], endpoint_url),
      ('controller-manager.conf', 'system:kube-controller-manager', [], local_url),
      ('scheduler.conf', 'system:kube-scheduler', [], local_url),
    ] %}

/etc/kubernetes/{{ file }}:
  kubeconfig.managed:
    - server: {{ server }}
    - cluster: {{ pillar.halite.cluster.name | json }}
    - user: {{ user }}
    - ca_certificate: {{ ca }}
    - common_name: {{ user }}
{%-   if organization %}
    - organization: {{ organization | json }}
{%-   endif %}
    - require:
        - file: /etc/kubernetes/pki
{%- endfor %}
{%- set files = pillar.halite.apiServer.get('files', {}) %}
{%- set directory = '/etc/kubernetes/apiserver' %}
{%- if files %}

# The API server's own configuration.
{{ directory }}:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'
    - makedirs: True
{%- endif %}
{%- for name, content in files | dictsort %}

{{ directory }}/{{ name }}:
  file.managed:
{%-   if name == 'encryption.yaml' %}
    - contents: {{ (first_line ~ '\n' ~ content | yaml(False)) | json }}
{%-   else %}
    - contents: {{ content | yaml(False) | json }}
{%-   endif %}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
{%-   if name == 'encryption.yaml' %}
    - show_changes: False
{%-   endif %}
    - require:
        - file: {{ directory }}
    - require_in:
        - file: /etc/kubernetes/manifests/kube-apiserver.yaml
{%- endfor %}
{%- if 'audit-policy.yaml' in files %}

/var/log/kubernetes/audit:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'
    - makedirs: True
    - require_in:
        - file: /etc/kubernetes/manifests/kube-apiserver.yaml
{%- endif %}
{%- macro manifest(component) %}
/etc/kubernetes/manifests/{{ component }}.yaml:
  file.managed:
    - source: salt://halite/base/control_plane/{{ component }}.yaml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - makedirs: True
    - dir_mode: '0700'
    - require:
        - sls: halite.base.pki.control_plane
        - kubeconfig: /etc/kubernetes/controller-manager.conf
        - kubeconfig: /etc/kubernetes/scheduler.conf
{%- endmacro %}

# The kubelet watches this directory and restarts the pod after a change.
{{- manifest('kube-apiserver') }}

# Open watches would keep the old one alive for 30 seconds, in which it serves no new client.
kube-apiserver-gives-way:
  cmd.run:
    - name: {{ api_server_gives_way() | json }}
    - onchanges:
        - file: /etc/kubernetes/manifests/kube-apiserver.yaml

# The API server reloads its certificates, but not every CA, and no service-account key.
kube-apiserver-ready:
  static_pod.running:
    - manifest: /etc/kubernetes/manifests/kube-apiserver.yaml
    - ready: {{ local_url }}/readyz
{%- if 'etcd' in node.roles %}
    - behind: {{ metrics }}/readyz
{%- endif %}
    - reads:
        - /etc/kubernetes/pki/ca.crt
        - /etc/kubernetes/pki/etcd/ca.crt
        - /etc/kubernetes/pki/front-proxy-ca.crt
        - /etc/kubernetes/pki/sa.key
        - /etc/kubernetes/pki/sa.pub
{%- for name, content in files | dictsort %}
        - {{ directory }}/{{ name }}
{%- endfor %}
    - failhard: True
    - watch:
        - file: /etc/kubernetes/manifests/kube-apiserver.yaml
{%- for name in ['admission.yaml', 'audit-policy.yaml', 'authentication.yaml', 'encryption.yaml'] if name not in files %}

# No longer declared; one of them has keys.
{{ directory }}/{{ name }}:
  file.absent:
    - require:
        - static_pod: kube-apiserver-ready
{%- endfor %}
{%- for component in ['kube-controller-manager', 'kube-scheduler'] %}

# As in an upgrade by kubeadm, neither is ever newer than the API server. Without one they would
# exit, and the kubelet's restart backoff would exceed the API server's start.
{{- manifest(component) }}
        - static_pod: kube-apiserver-ready
{%- endfor %}

# kubectl works for root without further settings. A regular file that root created stays.
/root/.kube:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'

/root/.kube/config:
  file.symlink:
    - target: /etc/kubernetes/admin.conf
    - unless: test -f /root/.kube/config && ! test -L /root/.kube/config
    - require:
        - file: /root/.kube
        - kubeconfig: /etc/kubernetes/admin.conf
