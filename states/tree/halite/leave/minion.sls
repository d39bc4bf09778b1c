{#- only: orchestration -#}
{#- The last part of Halite on a host that leaves: the minion removes itself, and the master, if
    there is one. A unit does it, because the minion's programs end with the minion. It is enabled
    until it is done: after a power cut, a host resumes at its next start. -#}
{%- from 'halite/map.jinja' import has_master with context %}
{%- from 'halite/leave/map.jinja' import ctl_pages, mounted_below_own, site_names with context %}
{%- from 'halite/services/minion/map.jinja' import pages, pages_directory with context %}
{%- set systemd = '/etc/systemd/system/' %}
{%- set unit = systemd ~ 'halite-leave.service' %}
{%- set units = ['halite-minion.service', 'halite-backup.timer', 'halite-backup-verify.timer', 'halite-master.service'] %}
{%- set further = ['halite-minion.service.d', 'halite-master.service.d', 'halite-backup.service', 'halite-backup-verify.service'] %}
{%- set files = ['/usr/local/bin/halite-minion', '/usr/local/bin/.halite-minion.previous', '/usr/local/bin/.halite-minion.previous.new',
                 '/usr/local/bin/halite-master', '/usr/local/bin/ctl'] %}
{{ unit }}:
  file.managed:
    - contents: |
        # Written by Halite.
        [Unit]
        Description=Halite leaves this host

        [Service]
        Type=oneshot
        # The minion's last return, and the master's last answer, are delivered first.
        ExecStartPre=/usr/bin/sleep {{ 5 if has_master else 2 }}
{%- for name in units %}
        ExecStart=-/usr/bin/systemctl disable --now {{ name }}
{%- endfor %}
        # A bundle may be an ISO that is mounted there.
        ExecStart=-/bin/sh -c "awk '$$5 ~ \"^/var/lib/halite/bundles/\" { print $$5 }' /proc/self/mountinfo | sort -r | xargs -r -n 1 umount"
        # Nothing is removed from a file system of the operator.
        ExecStart=/usr/bin/awk '{{ mounted_below_own() | replace('$5', '$$5') | replace('$)', '$$)') }}' /proc/self/mountinfo
        ExecStart=/bin/sh -c "test ! -e /var/lib/halite || exec find /var/lib/halite -mindepth 1 -maxdepth 1
{%- for name in site_names %} ! -name {{ name }}{% endfor %} -exec rm -rf --one-file-system {} +"
        # Emptied directories are removed; data that must stay is in directories that are not empty.
{%- for name in site_names %}
        ExecStart=-/usr/bin/rmdir --ignore-fail-on-non-empty /var/lib/halite/{{ name }}
{%- endfor %}
        ExecStart=-/usr/bin/rmdir --ignore-fail-on-non-empty /var/lib/halite
        ExecStart=-/usr/bin/rmdir --ignore-fail-on-non-empty /srv/halite
        ExecStart=/usr/bin/rm -rf --one-file-system /etc/halite {{ files | join(' ') }}
        ExecStart=/bin/sh -c "rm -f{% for page in pages %} {{ pages_directory }}{{ page }}{% endfor %} {{ ctl_pages }}"
        ExecStart=/usr/bin/rm -rf {% for name in units + further %} {{ systemd }}{{ name }}{% endfor %}
        ExecStart=/usr/bin/rm -f {{ unit }} {{ systemd }}multi-user.target.wants/halite-leave.service
        ExecStart=-/usr/bin/systemctl daemon-reload

        [Install]
        WantedBy=multi-user.target
    - user: root
    - group: root
    - mode: '0644'
    - force: True

minion-leaves:
  cmd.run:
    - name: systemctl daemon-reload && systemctl --quiet enable halite-leave.service && systemctl start --no-block halite-leave.service
    - require:
        - file: {{ unit }}
