{#- Backups of the cluster, on the master's host and its standbys: `ctl backup create` on a timer,
    which needs the master only on its own host. The backups stay, whatever is declared. -#}
{%- set scheduled = ['halite-backup.service', 'halite-backup.timer'] +
                    (['halite-backup-verify.service', 'halite-backup-verify.timer'] if pillar.halite.backup.isVerified else []) %}
include:
  - halite.services.ctl
  - halite.services.reports

/var/lib/halite/reports/backup.since:
  file.managed:
    - contents: There should be backups since this file was made.
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - require:
        - file: /var/lib/halite/reports
{%- for unit in scheduled %}

/etc/systemd/system/{{ unit }}:
  file.managed:
    - source: salt://halite/services/backup/{{ unit }}.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
{%- endfor %}

# Timers start these units, so systemd must reload them after a change.
backup-read:
  cmd.run:
    - name: systemctl daemon-reload
    - onchanges:
{%- for unit in scheduled if unit.endswith('.service') %}
        - file: /etc/systemd/system/{{ unit }}
{%- endfor %}
{%- for unit in scheduled if unit.endswith('.timer') %}

{{ unit }}:
  service.running:
    - enable: True
    - unmask: True
    - require:
        - file: /usr/local/bin/ctl
        - file: /var/lib/halite/reports/backup.since
        - cmd: backup-read
    - watch:
        - file: /etc/systemd/system/{{ unit }}
{%- endfor %}
{%- if not pillar.halite.backup.isVerified %}

halite-backup-verify.timer:
  service.dead:
    - enable: False
{#-   The report would grow old, and an alert would say so forever. #}
{%-   for path in ['/etc/systemd/system/halite-backup-verify.timer', '/etc/systemd/system/halite-backup-verify.service',
                   '/var/lib/halite/reports/backup-verify.json'] %}

{{ path }}:
  file.absent:
    - require:
        - service: halite-backup-verify.timer
{%-   endfor %}
{%- endif %}
