include:
  - halite.base.kubeadm_objects

kube-proxy-rbac:
  kubernetes.manifest:
    - source: salt://halite/base/kube_proxy/rbac.yaml
    - whole: True
    - require:
        - kubernetes: api-ready

kube-proxy-configuration:
  kubernetes.manifest:
    - source: salt://halite/base/kube_proxy/configuration.yaml.j2
    - template: jinja
    - whole: True
    - require:
        - kubernetes: api-ready

kube-proxy:
  kubernetes.manifest:
    - source: salt://halite/base/kube_proxy/daemonset.yaml.j2
    - template: jinja
    - require:
        - kubernetes: kube-proxy-rbac
        - kubernetes: kube-proxy-configuration
