{#- The operator's own Kubernetes manifests (/etc/halite/custom/manifests), each file a set. They come
    last: they may use what addons and charts define. -#}
{%- from 'halite/addons/map.jinja' import manifests with context %}
include:
  - halite.base.kubeadm_objects
  - halite.addons.owned
{%- for name, path in manifests | dictsort %}

{{ name }}:
  kubernetes.manifest:
    - source: salt://{{ path }}
{%-   if path.endswith('.j2') %}
    - template: jinja
{%-   endif %}
    - set: {{ name }}
    - require:
        - kubernetes: api-ready
{%- endfor %}
