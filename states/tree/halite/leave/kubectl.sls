{#- only: orchestration -#}
# kubectl of root no longer has the administrator's file of a control plane. Another file stays.
/root/.kube/config:
  file.absent:
    - onlyif: test "$(readlink /root/.kube/config)" = /etc/kubernetes/admin.conf

kubectl-directory:
  cmd.run:
    - name: rmdir --ignore-fail-on-non-empty /root/.kube
    - onlyif: test -d /root/.kube
    - require:
        - file: /root/.kube/config
