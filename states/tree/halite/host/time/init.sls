{#- The clock. chrony uses only the declared servers. The distribution's configuration, which names
    servers on the internet, stays unchanged; a drop-in makes chrony read another file. -#}
{%- from 'halite/map.jinja' import is_red_hat with context %}
{%- set unit = 'chronyd' if is_red_hat else 'chrony' %}
{%- set configuration = '/etc/chrony/halite.conf' %}
{%- set drop_in = '/etc/systemd/system/' ~ unit ~ '.service.d/halite.conf' %}
include:
  - halite.host.packages
{%- if pillar.halite.host.manageTime %}

{{ configuration }}:
  file.managed:
    - source: salt://halite/host/time/chrony.conf.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

{{ drop_in }}:
  file.managed:
    - source: salt://halite/host/time/unit.conf.j2
    - template: jinja
    - context:
        # The distribution's own command line; unit.conf.j2 appends the configuration.
        command: {{ ('/usr/sbin/chronyd $OPTIONS' if is_red_hat else '!/usr/sbin/chronyd $DAEMON_OPTS') | json }}
        configuration: {{ configuration }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

{{ unit }}:
  service.running:
    - enable: True
    - unmask: True
    - watch:
        - file: {{ configuration }}
        - file: {{ drop_in }}
{%- else %}

# Disabled: chrony stays stopped, because with the distribution's configuration it would query
# servers on the internet. An operator who wants it starts it.
{{ unit }}:
  service.dead:
    - enable: False
    - onlyif: test -e {{ drop_in }}

{{ configuration }}:
  file.absent:
    - require:
        - service: {{ unit }}

{{ drop_in }}:
  file.absent:
    - require:
        - file: {{ configuration }}
{%- endif %}
