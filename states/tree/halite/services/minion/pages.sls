{#- The manual pages of the minion, also on hosts without `ctl`. -#}
{%- from 'halite/services/minion/map.jinja' import pages, pages_directory with context %}
{%- for page in pages %}

{{ pages_directory }}{{ page }}:
  file.managed:
    - source: salt://halite/services/minion/{{ page }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
{%- endfor %}
