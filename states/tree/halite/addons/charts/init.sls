{#- The enabled charts, as Helm rendered them when the bundle was built (`charts/NAME.yaml` in the
    bundle). -#}
{%- from 'halite/addons/map.jinja' import chart_set with context %}
include:
  - halite.base.kubeadm_objects
{%- for name in pillar.halite.charts %}
{%-   if name not in pillar.halite.bundle.charts %}
{{-     raise('the bundle has no chart `' ~ name ~ '`; it has ' ~ (pillar.halite.bundle.charts | join(', ') or 'none')) }}
{%-   endif %}

{{ chart_set(name) }}:
  kubernetes.manifest:
    - source: salt://charts/{{ name }}.yaml
    - set: {{ chart_set(name) }}
    - require:
        - kubernetes: api-ready
{%- endfor %}
