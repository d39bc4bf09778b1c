{#- The packages that only Kubernetes needs. Tools that the operator may use, firewalld and chrony
    stay. -#}
include:
  - halite.leave.host

kubernetes-packages:
  pkg.removed:
    - pkgs: [containerd, kubernetes-cni, kubelet, kubeadm, kubectl, keepalived]
    - require:
        - sls: halite.leave.host
