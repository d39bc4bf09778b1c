{#- The clock: chrony asks the servers that are declared, and nobody else. The distribution's own configuration, which names
    servers of the internet, stays as it is: chrony is told to read another, and reads it again when it no longer is. -#}
{%- from 'map.jinja' import is_red_hat with context %}
{%- set unit = 'chronyd' if is_red_hat else 'chrony' %}
{%- set configuration = '/etc/chrony/halite.conf' %}
{%- set drop_in = '/etc/systemd/system/' ~ unit ~ '.service.d/halite.conf' %}
include:
  - host.packages
{%- if pillar.host.manageTime %}

{{ configuration }}:
  file.managed:
    - source: salt://host/time/chrony.conf.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
    - require:
        - pkg: host-packages

{{ drop_in }}:
  file.managed:
    - source: salt://host/time/unit.conf.j2
    - template: jinja
    - context:
        # As the distribution starts it, with the options of its own file, and then ours.
        command: {{ ('/usr/sbin/chronyd $OPTIONS' if is_red_hat else '!/usr/sbin/chronyd $DAEMON_OPTS') | json }}
        configuration: {{ configuration }}
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
    - require:
        - pkg: host-packages

{{ unit }}:
  service.running:
    - enable: True
    - watch:
        - file: {{ configuration }}
        - file: {{ drop_in }}
{%- else %}

{%- for path in [drop_in, configuration] %}

{{ path }}:
  file.absent: []
{%- endfor %}

chrony-as-the-distribution-has-it:
  cmd.run:
    - name: systemctl daemon-reload && systemctl try-restart {{ unit }}.service
    - onlyif: systemctl --quiet is-active {{ unit }}.service
    - onchanges:
        - file: {{ drop_in }}
    - require:
        - file: {{ configuration }}
{%- endif %}
