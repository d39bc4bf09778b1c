{#- The last of Halite on a host that leaves: what it had as the master's or a standby, and the minion,
    which removes itself. A unit of its own does it,
    because the minion's programs end with the minion. -#}
{%- set paths = ['/etc/halite', '/var/lib/halite', '/usr/local/bin/halite-minion', '/usr/local/bin/.halite-minion.previous',
                 '/usr/local/bin/ctl', '/usr/local/bin/halite-master', '/etc/systemd/system/halite-minion.service',
                 '/etc/systemd/system/halite-minion.service.d', '/etc/systemd/system/halite-master.service',
                 '/etc/systemd/system/halite-master.service.d', '/etc/systemd/system/halite-backup.service',
                 '/etc/systemd/system/halite-backup.timer', '/etc/systemd/system/halite-backup-verify.service',
                 '/etc/systemd/system/halite-backup-verify.timer'] %}
minion-leaves:
  cmd.run:
    - name: >-
        systemd-run --quiet --collect --unit=halite-leave --on-active=2 --timer-property=AccuracySec=100ms
        /bin/sh -c 'systemctl disable --now halite-minion.service; rm -rf {{ paths | join(' ') }}; systemctl daemon-reload'
