{#- `ctl` with its completions, its manual pages and those of the master, on hosts where operators or
    states run it. The minion's pages are on every host (halite.services.minion.pages). -#}

/usr/local/bin/ctl:
  file.managed:
    - source: bundle://bin/ctl
    - user: root
    - group: root
    - mode: '0755'
    - force: True

# The program has them in itself: they are always those of its version.
ctl-pages:
  cmd.run:
    - name: /usr/local/bin/ctl generate --installed /usr/local/share
    - onchanges:
        - file: /usr/local/bin/ctl
