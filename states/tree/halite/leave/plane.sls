{#- only: orchestration -#}
{#- Removes from a host that stays in the cluster what belonged to its control plane, once its API
    server has stopped (halite.leave.control_plane): the keys of CAs, kubeconfig files, root's
    access to the master, and a standby of the master. The ports that the host opens and serves by
    its roles follow from its new ones. -#}
{%- from 'halite/map.jinja' import roles, serves_bundles with context %}
{%- from 'halite/cluster.jinja' import has_site_registry with context %}
{%- from 'halite/leave/map.jinja' import ctl_pages with context %}
include:
  - halite.leave.control_plane
  - halite.leave.kubectl
  - halite.services.master.absent
{%- set pki = '/etc/kubernetes/pki/' %}
{%- set certificates = ['apiserver', 'apiserver-etcd-client', 'apiserver-kubelet-client', 'front-proxy-client'] %}
{%- for path in ['/etc/kubernetes/admin.conf', '/etc/kubernetes/super-admin.conf', '/etc/kubernetes/controller-manager.conf',
                 '/etc/kubernetes/scheduler.conf', pki ~ 'ca.key', pki ~ 'front-proxy-ca.crt', pki ~ 'front-proxy-ca.key', pki ~ 'sa.key',
                 pki ~ 'sa.pub', '/etc/kubernetes/apiserver'] + ([] if 'etcd' in roles else [pki ~ 'etcd']) %}

{{ path }}:
  file.absent:
    - require:
        - sls: halite.leave.control_plane
{%- endfor %}
{%- for name in certificates %}
{%-   for suffix in ['crt', 'key'] %}

{{ pki }}{{ name }}.{{ suffix }}:
  file.absent:
    - require:
        - sls: halite.leave.control_plane
{%-   endfor %}
{%- endfor %}
{%- if 'etcd' in roles %}

# A member that stays has no use for the key of its CA, with which kubeadm renews. A member that
# leaves has already left.
etcd-ca-key:
  file.absent:
    - name: {{ pki }}etcd/ca.key
    - require:
        - sls: halite.leave.control_plane
{%- endif %}

# A standby makes its own backups. Those that it made stay.
{%- for name in ['halite-backup.service', 'halite-backup.timer', 'halite-backup-verify.service', 'halite-backup-verify.timer'] %}

/etc/systemd/system/{{ name }}:
  file.absent:
    - require:
        - sls: halite.services.master.absent
    - onchanges_in:
        - cmd: backup-units-read
{%- endfor %}

backup-units-read:
  cmd.run:
    - name: systemctl daemon-reload

# The files of a standby, and of the master's host, if it ever was that: CA keys, the store,
# documents and secrets. No command removes the control plane of the master's host itself. Files
# that minion, bundle server and site registry need stay. The directory by which an interrupted run
# resumes is removed last.
{%- set directory = '/var/lib/halite/master' %}
{%- set needed = ['minion.yaml', 'pki', 'nginx', 'registry', 'trust'] %}
former-master:
  cmd.run:
    - name: find /etc/halite -mindepth 1 -maxdepth 1
{%- for name in needed %} ! -name {{ name }}{% endfor %} -exec rm -rf --one-file-system {} +
        && find {{ directory }} -mindepth 1 -maxdepth 1 -exec rm -rf --one-file-system {} +
        && { rmdir {{ directory }} || mountpoint -q {{ directory }}; }
    - onlyif: test -d {{ directory }} && { ! mountpoint -q {{ directory }} || test -n "$(ls -A {{ directory }})"; }
    - require:
        - file: {{ directory }}/standby
    - require_in:
        - file: /etc/systemd/system/halite-master.service
        - file: /etc/systemd/system/halite-master.service.d
        - file: /usr/local/bin/halite-master
        - file: /etc/halite/master.yaml

{%- if not (has_site_registry or serves_bundles) %}

ctl-pages-gone:
  cmd.run:
    - name: rm -f {{ ctl_pages }}
    - onlyif: test -e /usr/local/share/man/man1/ctl.1
    - require:
        - sls: halite.services.master.absent
{%- endif %}

{%- for path in ['/etc/halite/operator', '/etc/halite/masters'] + ([] if has_site_registry or serves_bundles else ['/usr/local/bin/ctl']) %}

{{ path }}:
  file.absent:
    - require:
        - sls: halite.services.master.absent
{%- endfor %}
