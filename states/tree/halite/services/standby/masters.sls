{#- The masters that this standby follows: the first that answers (docs/decisions/0021). The file
    makes the host a standby; `halite-master promote` removes it. -#}
{%- from 'halite/map.jinja' import node, is_standby with context %}
{%- if is_standby %}
{%-   set master = pillar.halite.master %}
{%-   set own = node.controlPlane ~ ':' ~ master.port %}
{%-   set directory = '/var/lib/halite/master' %}

{{ directory }}:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'
    - makedirs: True

{{ directory }}/standby-of:
  file.managed:
    - contents: |
        # Written by Halite.
{%-   for address in master.masters if address != own %}
        {{ address }}
{%-   endfor %}
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - require:
        - file: {{ directory }}
{%- endif %}
