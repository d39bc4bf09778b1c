{#- The master mends itself: its program, its unit, its configuration; and makes its certificate authorities once. -#}

/usr/local/bin/ctl:
  file.managed:
    - source: bundle://bin/ctl
    - user: root
    - group: root
    - mode: '0755'

/usr/local/bin/halite-master:
  file.managed:
    - source: bundle://bin/halite-master
    - user: root
    - group: root
    - mode: '0755'

/etc/halite/master.yaml:
  file.managed:
    - source: salt://halite/master/master.yaml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True

/etc/systemd/system/halite-master.service:
  file.managed:
    - source: salt://halite/master/halite-master.service
    - user: root
    - group: root
    - mode: '0644'

# Authorities, service-account keys and root's operator identity: what is there already is kept.
halite-master-init:
  cmd.run:
    - name: /usr/local/bin/halite-master init --config /etc/halite/master.yaml
    - creates:
{%- for ca in ['halite', 'kubernetes', 'etcd', 'front-proxy', 'site'] %}
        - /var/lib/halite/master/ca/{{ ca }}.crt
{%- endfor %}
        - /var/lib/halite/master/sa.pub
        - /etc/halite/operator/operator.crt
    - require:
        - file: /usr/local/bin/halite-master
        - file: /etc/halite/master.yaml

halite-master:
  service.running:
    - enable: True
    - require:
        - cmd: halite-master-init
        - file: /etc/systemd/system/halite-master.service

# As for the minion: the job that asks for it is answered first.
halite-master-restart:
  cmd.run:
    - name: systemctl daemon-reload && systemd-run --quiet --collect --on-active=2 --timer-property=AccuracySec=100ms systemctl restart halite-master.service
    - onlyif: test -e /var/lib/halite/minion/identity.crt
    - onchanges:
        - file: /usr/local/bin/halite-master
        - file: /etc/halite/master.yaml
        - file: /etc/systemd/system/halite-master.service
    - order: last
