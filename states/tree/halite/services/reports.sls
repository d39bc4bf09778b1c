# Reports of backups, which the minion reads for `ctl status`.
/var/lib/halite/reports:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'
    - makedirs: True
