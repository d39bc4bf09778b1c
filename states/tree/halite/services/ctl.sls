{#- `ctl` with its completions and the manual pages of all programs, on hosts where operators or states run it. -#}

/usr/local/bin/ctl:
  file.managed:
    - source: bundle://bin/ctl
    - user: root
    - group: root
    - mode: '0755'
    - force: True

# The program has them in itself: they are always those of its version. Hosts without `ctl` have
# no pages.
ctl-pages:
  cmd.run:
    - name: /usr/local/bin/ctl generate --installed /usr/local/share
    - onchanges:
        - file: /usr/local/bin/ctl
