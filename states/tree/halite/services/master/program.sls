{#- The master's program, its configuration and its unit: for the master's host, and for its
    standbys, which run the same. -#}

/usr/local/bin/halite-master:
  file.managed:
    - source: bundle://bin/halite-master
    - user: root
    - group: root
    - mode: '0755'
    - force: True

/etc/halite/master.yaml:
  file.managed:
    - source: salt://halite/services/master/master.yaml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

/etc/systemd/system/halite-master.service:
  file.managed:
    - source: salt://halite/services/master/halite-master.service
    - user: root
    - group: root
    - mode: '0644'
    - force: True

/etc/systemd/system/halite-master.service.d:
  file.absent: []
