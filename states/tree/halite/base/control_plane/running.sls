{#- A control plane that runs as declared. -#}
{%- from 'halite/base/map.jinja' import probe_host with context %}
{%- from 'halite/base/pki/signer.jinja' import is_rotated, rotation_signer with context %}
include:
  - halite.base.control_plane
{%- for component, file, address, probe, more in [
      ('kube-controller-manager', 'controller-manager.conf',
       probe_host(pillar.halite.controllerManager.extraArgs) ~ ':10257', '/healthz',
       ['ca.crt', 'ca.key', 'front-proxy-ca.crt', 'sa.key'] + (['ca-signer.crt'] if is_rotated else [])),
      ('kube-scheduler', 'scheduler.conf', probe_host(pillar.halite.scheduler.extraArgs) ~ ':10259', '/readyz', []),
    ] %}

# The program reads the certificate in its kubeconfig once, when it starts.
{{ component }}-ready:
  static_pod.running:
    - manifest: /etc/kubernetes/manifests/{{ component }}.yaml
    - ready: https://{{ '127.0.0.1' if address.startswith(':') else '' }}{{ address }}{{ probe }}
    - reads:
        - /etc/kubernetes/{{ file }}
{%-   for name in more %}
        - /etc/kubernetes/pki/{{ name }}
{%-   endfor %}
    - failhard: True
    - require:
        - static_pod: kube-apiserver-ready
    - watch:
        - file: /etc/kubernetes/manifests/{{ component }}.yaml
        - kubeconfig: /etc/kubernetes/{{ file }}
{%- endfor %}
{%- if not is_rotated %}

# Of a rotation that has ended.
{{ rotation_signer }}:
  file.absent:
    - require:
        - static_pod: kube-controller-manager-ready
{%- endif %}
