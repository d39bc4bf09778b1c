{#- only: highstate, orchestration -#}
{#- A host that does not run the site registry, or no longer does. Images and backups belong to the
    site and stay. -#}
{%- set timers = ['halite-registry-backup.timer', 'halite-registry-verify.timer'] %}
{%- for unit in timers + ['halite-registry'] %}

{{ unit }}:
  service.dead:
    - enable: False
{%- endfor %}
{%- for path in ['/etc/systemd/system/halite-registry-backup.timer', '/etc/systemd/system/halite-registry-backup.service',
                 '/etc/systemd/system/halite-registry-verify.timer', '/etc/systemd/system/halite-registry-verify.service',
                 '/etc/systemd/system/halite-failed@.service', '/etc/systemd/system/halite-registry.service',
                 '/etc/halite/registry', '/var/lib/halite/reports/registry-backup.since',
                 '/var/lib/halite/reports/registry-backup.json', '/var/lib/halite/reports/registry-backup.failed',
                 '/var/lib/halite/reports/registry-verify.json', '/var/lib/halite/reports/registry-verify.failed'] %}

{{ path }}:
  file.absent:
    - require:
{%-   for timer in timers %}
        - service: {{ timer }}
{%-   endfor %}
        - service: halite-registry
{%- endfor %}
