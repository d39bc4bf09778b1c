# Only for `ctl bootstrap`, after a run that was interrupted between the new program and its delayed
# restart. No job is running then.
halite-master-restart-now:
  cmd.run:
    - name: systemctl daemon-reload && systemctl restart halite-master.service
