{#- only: orchestration -#}
{#- Like halite.leave.mounts, before the data of pods, etcd and the site registry is removed. A
    directory of pods or etcd may be a separate file system, one of backups or images may not; the
    kubelet's mounts for pods end with the pods. -#}
{%- from 'halite/leave/map.jinja' import mounted_below, site_data with context %}
{%- from 'halite/etcd.jinja' import etcd_is_external with context %}
{%- set emptied = ([] if etcd_is_external else ['/var/lib/etcd']) + ['/var/lib/containerd', '/var/lib/cni', '/var/log/pods', '/var/log/containers'] %}
{%- set program = mounted_below(emptied, at=site_data, but=['/var/lib/containerd/tmpmounts']) %}
data-unmounted:
  cmd.run:
    - name: {{ ("awk '" ~ program ~ "' /proc/self/mountinfo || { echo 'unmount it, or leave out --wipe-data, and run the same command again' >&2; exit 1; }") | json }}
