{#- A host that does not run the site's registry, perhaps no longer. Images and backups are the site's own: they stay. -#}
{%- for unit in ['halite-registry-backup.timer', 'halite-registry'] %}

{{ unit }}:
  service.dead:
    - enable: False
{%- endfor %}
{%- for path in ['/etc/systemd/system/halite-registry-backup.timer', '/etc/systemd/system/halite-registry-backup.service',
                 '/etc/systemd/system/halite-registry.service', '/etc/halite/registry'] %}

{{ path }}:
  file.absent:
    - require:
        - service: halite-registry-backup.timer
        - service: halite-registry
{%- endfor %}
