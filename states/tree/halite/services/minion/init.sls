{#- The minion: program, unit and configuration. The minion applies this to itself. -#}
{%- from 'halite/map.jinja' import node with context %}

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

halite-minion:
  service.running:
    - enable: True
    - unmask: True
    - only_drop_ins: []
    - require:
        - file: /usr/local/bin/halite-minion
        - file: /etc/halite/minion.yaml
        - file: /etc/systemd/system/halite-minion.service

# A restart now would end the job that runs this state, so systemd restarts the minion two seconds
# later, after the return. Before enrolment there is no such job: the state above starts the minion,
# and no restart is needed.
halite-minion-restart:
  cmd.run:
    - name: systemctl daemon-reload && systemd-run --quiet --collect --on-active=2 --timer-property=AccuracySec=100ms systemctl restart halite-minion.service
    - onlyif: test -e /var/lib/halite/minion/identity.crt
    - onchanges:
        - file: /usr/local/bin/halite-minion
        - file: /etc/halite/minion.yaml
        - file: /etc/systemd/system/halite-minion.service
    - order: last
