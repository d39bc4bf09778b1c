{#- only: orchestration -#}
# Root's kubectl no longer uses the control plane's administrator file. Any other file stays.
/root/.kube/config:
  file.absent:
    - onlyif: test "$(readlink /root/.kube/config)" = /etc/kubernetes/admin.conf

kubectl-directory:
  cmd.run:
    - name: rmdir --ignore-fail-on-non-empty /root/.kube
    - onlyif: test -d /root/.kube
    - require:
        - file: /root/.kube/config
