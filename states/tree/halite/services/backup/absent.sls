{#- only: highstate, orchestration -#}
{#- A host that makes no cluster backups, or no longer does. Existing ones stay. -#}
{%- set timers = ['halite-backup.timer', 'halite-backup-verify.timer'] %}
{%- for unit in timers %}

{{ unit }}:
  service.dead:
    - enable: False
{%- endfor %}
{%- for name in ['backup.since', 'backup.json', 'backup-verify.json'] %}

/var/lib/halite/reports/{{ name }}:
  file.absent:
    - require:
{%-   for unit in timers %}
        - service: {{ unit }}
{%-   endfor %}
{%- endfor %}
