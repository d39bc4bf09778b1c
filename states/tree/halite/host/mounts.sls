{#- Refuses a host where a file system is mounted at a directory of Halite, before anything on the
    host is changed. Data directories (/var/lib/etcd, /var/lib/containerd, /var/lib/kubelet) may be
    on a separate disk. -#}
own-directories:
  mount.refused:
    - paths:
        - /etc/containerd
        - /etc/containerd/certs.d
        - /etc/halite
        - /etc/kubernetes
        - /etc/kubernetes/manifests
        - /etc/kubernetes/pki
        - /etc/systemd/system
        - /var/lib/kubelet/pki
    - order: first
    - failhard: True
