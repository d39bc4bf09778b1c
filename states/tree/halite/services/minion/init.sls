{#- The minion: program, unit and configuration. The minion applies this to itself. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- set previous = '/usr/local/bin/.halite-minion.previous' %}

/usr/local/bin/halite-minion:
  file.managed:
    - source: bundle://bin/halite-minion
    - user: root
    - group: root
    - mode: '0755'
    - force: True

/etc/halite/minion.yaml:
  file.managed:
    - source: salt://halite/services/minion/minion.yaml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

/etc/systemd/system/halite-minion.service:
  file.managed:
    - source: salt://halite/services/minion/halite-minion.service
    - user: root
    - group: root
    - mode: '0644'
    - force: True

/etc/systemd/system/halite-minion.service.d:
  file.absent: []

halite-minion:
  service.running:
    - enable: True
    - unmask: True
    - require:
        - file: /usr/local/bin/halite-minion
        - file: /etc/halite/minion.yaml
        - file: /etc/systemd/system/halite-minion.service

# The record of an update that was rolled back: now it is tried again.
/var/lib/halite/minion-update.json:
  file.absent:
    - require:
        - file: /usr/local/bin/halite-minion

# A restart now would end the job that runs this state, so the minion is restarted two seconds
# later, after the return, by a copy of the running program: it replaces the new one again if that
# does not reach the master. Before enrolment there is no such job: the state above starts the
# minion, and no restart is needed.
halite-minion-restart:
  cmd.run:
    - name: >-
        systemctl daemon-reload;
        pid=$(systemctl show --property=MainPID --value halite-minion.service);
        if [ "${pid:-0}" -eq 0 ]; then exec systemctl restart halite-minion.service; fi;
        cp /proc/$pid/exe {{ previous }}.new && mv {{ previous }}.new {{ previous }} &&
        systemd-run --quiet --collect --unit=halite-minion-update-$$ --on-active=2 --timer-property=AccuracySec=100ms
        {{ previous }} update
    - onlyif: test -e /var/lib/halite/minion/identity.crt
    - onchanges:
        - file: /usr/local/bin/halite-minion
        - file: /etc/halite/minion.yaml
        - file: /etc/systemd/system/halite-minion.service
        - file: /etc/systemd/system/halite-minion.service.d
    - order: last
