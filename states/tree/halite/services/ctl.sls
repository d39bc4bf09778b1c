{#- `ctl`, on hosts where operators or states run it. -#}

/usr/local/bin/ctl:
  file.managed:
    - source: bundle://bin/ctl
    - user: root
    - group: root
    - mode: '0755'
    - force: True
