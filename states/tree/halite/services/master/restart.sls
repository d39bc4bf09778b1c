# For `ctl bootstrap` alone, after a run that was cut off between the program and the restart that it asks for. No job waits
# for an answer then.
halite-master-restart-now:
  cmd.run:
    - name: systemctl daemon-reload && systemctl restart halite-master.service
