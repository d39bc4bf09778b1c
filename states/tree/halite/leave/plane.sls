{#- Takes from a host that stays in the cluster what a control plane had there, once its API server has ended
    (halite.leave.control_plane): the keys of CAs, kubeconfig files, root's access to the master, and a standby
    of that. What the host opens and answers by its roles follows from its new ones. -#}
{%- from 'halite/map.jinja' import etcd_is_external, has_site_registry, serves_bundles with context %}
include:
  - halite.leave.control_plane
  - halite.leave.kubectl
  - halite.services.master.absent
{%- set pki = '/etc/kubernetes/pki/' %}
{%- set certificates = ['apiserver', 'apiserver-etcd-client', 'apiserver-kubelet-client', 'front-proxy-client'] %}
{%- for path in ['/etc/kubernetes/admin.conf', '/etc/kubernetes/super-admin.conf', '/etc/kubernetes/controller-manager.conf',
                 '/etc/kubernetes/scheduler.conf', pki ~ 'ca.key', pki ~ 'front-proxy-ca.crt', pki ~ 'front-proxy-ca.key', pki ~ 'sa.key',
                 pki ~ 'sa.pub'] + ([pki ~ 'etcd'] if etcd_is_external else []) %}

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

# A standby makes backups in its turn. Those that it made stay.
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

standby-directory:
  cmd.run:
    - name: rmdir --ignore-fail-on-non-empty /var/lib/halite/master
    - onlyif: test -d /var/lib/halite/master
    - require:
        - sls: halite.services.master.absent
{%- for path in ['/etc/halite/operator', '/etc/halite/masters'] + ([] if has_site_registry or serves_bundles else ['/usr/local/bin/ctl']) %}

{{ path }}:
  file.absent:
    - require:
        - sls: halite.services.master.absent
{%- endfor %}
