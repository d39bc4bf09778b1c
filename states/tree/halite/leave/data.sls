{#- What pods and etcd stored on a host that leaves. A directory may be a file system of its own, so
    it is emptied. -#}
include:
  - halite.leave.host
{%- for directory in ['/var/lib/etcd', '/var/lib/kubelet', '/var/lib/containerd', '/var/lib/cni', '/var/log/pods',
                      '/var/log/containers'] %}

{{ directory }}:
  cmd.run:
    - name: find {{ directory }} -xdev -mindepth 1 -delete
    - onlyif: test -n "$(ls -A {{ directory }} 2>/dev/null)"
    - require:
        - sls: halite.leave.host
{%- endfor %}
