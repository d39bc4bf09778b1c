{#- API server, controller-manager and scheduler as static pods, with the kubeconfig files of these
    programs and of root. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/base/map.jinja' import endpoint_url, local_url with context %}
{%- set ca = pillar.halite.pki.kubernetes.cert | json %}
include:
  - halite.base.containerd
  - halite.base.pki.control_plane

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
    - cluster: {{ pillar.halite.cluster.name }}
    - user: {{ user }}
    - ca_certificate: {{ ca }}
    - common_name: {{ user }}
{%-   if organization %}
    - organization: {{ organization | json }}
{%-   endif %}
    - require:
        - file: /etc/kubernetes/pki
{%- endfor %}
{%- for component in ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler'] %}

# The kubelet watches this directory and restarts the pod after a change.
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
{%- endfor %}

{%- for component, file in [('kube-controller-manager', 'controller-manager.conf'), ('kube-scheduler', 'scheduler.conf')] %}
{%- set container = 'labels."io.kubernetes.pod.namespace"==kube-system,labels."io.kubernetes.container.name"==' ~ component %}

# The program reads the certificate in its kubeconfig once, when it starts. After a renewal its
# container is stopped, and the kubelet starts it again. At the first bootstrap there is none.
{{ component }}-restart:
  cmd.run:
    - name: >-
        all=$(ctr --namespace k8s.io containers ls --quiet '{{ container }}') || exit 1;
        running=$(ctr --namespace k8s.io tasks ls | awk '$3 == "RUNNING" {print $1}') || exit 1;
        for id in $all; do if echo "$running" | grep -qx "$id";
        then ctr --namespace k8s.io tasks kill --signal SIGTERM "$id" || exit 1; fi; done
    - require:
        - cmd: containerd-answers
    - onchanges:
        - kubeconfig: /etc/kubernetes/{{ file }}
{%- endfor %}

# kubectl works for root without further settings. A regular file that root made stays.
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
