{#- A standby of the master (docs/decisions/0021): the master's program and unit, which follow the
    master as long as the file `standby-of` exists, and the bundles. To the master it is the minion
    of its host, whose identity Halite's CA has signed. -#}
include:
  - halite.services.ctl
  - halite.services.master.program
  - halite.services.master.metrics
  - halite.services.standby.masters
  - halite.services.bundle_server.copies
{%- if pillar.halite.backup.isMade %}
  - halite.services.backup
{%- else %}
  - halite.services.backup.absent
{%- endif %}

# A host that was the master's host runs it until now: it restarts as a standby.
halite-master:
  service.running:
    - enable: True
    - unmask: True
    - watch:
        - file: /usr/local/bin/halite-master
        - file: /etc/halite/master.yaml
        - file: /etc/systemd/system/halite-master.service
        - file: /etc/systemd/system/halite-master.service.d
        - file: /var/lib/halite/master/standby-of
