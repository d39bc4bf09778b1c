# Only for `ctl bootstrap`, as for the master.
halite-minion-restart-now:
  cmd.run:
    - name: systemctl daemon-reload && systemctl restart halite-minion.service
