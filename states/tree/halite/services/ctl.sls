{#- The operator's command, where people or states of the host run it. -#}

/usr/local/bin/ctl:
  file.managed:
    - source: bundle://bin/ctl
    - user: root
    - group: root
    - mode: '0755'
