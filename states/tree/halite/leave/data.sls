{#- only: orchestration -#}
{#- Removes the data that pods, etcd and the site registry stored on a host that leaves, and backups
    below /var/lib/halite. A directory of pods or etcd may be a separate file system, so it is
    emptied. Nothing is removed from a file system that is mounted below. -#}
{%- from 'halite/etcd.jinja' import etcd_is_external with context %}
{%- from 'halite/leave/map.jinja' import mounted_below, site_data with context %}
include:
  - halite.leave.host

# No backup is made or verified while they are removed.
backups-stopped:
  cmd.run:
    - name: systemctl disable --now halite-backup.timer halite-backup-verify.timer; systemctl stop halite-backup.service halite-backup-verify.service
    - onlyif: systemctl --quiet is-enabled halite-backup.timer || systemctl --quiet is-active halite-backup.timer
{%- for directory in ([] if etcd_is_external else ['/var/lib/etcd']) + ['/var/lib/kubelet', '/var/lib/containerd', '/var/lib/cni', '/var/log/pods',
                      '/var/log/containers'] + site_data %}

{{ directory }}:
  cmd.run:
    - name: {{ ("awk '" ~ mounted_below([directory], at=[directory] if directory in site_data else []) ~ "' /proc/self/mountinfo && find " ~ directory ~ " -xdev -mindepth 1 -delete") | json }}
    - onlyif: test -n "$(ls -A {{ directory }} 2>/dev/null)"
    - require:
        - sls: halite.leave.host
        - cmd: backups-stopped
{%- endfor %}

# It has no owner any more.
halite-registry-user:
  user.absent:
    - name: halite-registry
    - require:
        - cmd: {{ pillar.halite.siteRegistry.data }}

halite-registry-group:
  group.absent:
    - name: halite-registry
    - require:
        - user: halite-registry-user
