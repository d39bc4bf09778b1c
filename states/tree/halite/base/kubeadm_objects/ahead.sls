{#- Objects that an API server needs from its first request on. In an upgrade to another minor version
    they come before the first new API server, and everything else after the last. -#}
{%- from 'halite/base/map.jinja' import kubeadm with context %}
api-ready:
  kubernetes.api_ready:
    - timeout: 300
{%- if not kubeadm.kubelet_client_group %}

# Without it, the certificate of a new API server gives no right at the kubelets.
kubeadm-kubelet-client:
  kubernetes.manifest:
    - source: salt://halite/base/kubeadm_objects/kubelet_client.yaml
    - whole: True
    - require:
        - kubernetes: api-ready
{%- endif %}
