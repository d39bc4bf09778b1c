{#- Charts of the bundle, as Helm rendered them when it was built (`charts/NAME.yaml` there). -#}
{%- from 'addons/map.jinja' import chart_set with context %}
include:
  - base.kubeadm_objects
{%- for name in pillar.charts %}
{%-   if name not in pillar.bundle.charts %}
{{-     raise('the bundle has no chart `' ~ name ~ '`; it has ' ~ (pillar.bundle.charts | join(', ') or 'none')) }}
{%-   endif %}

{{ chart_set(name) }}:
  kubernetes.manifest:
    - source: salt://charts/{{ name }}.yaml
    - set: {{ chart_set(name) }}
    - require:
        - kubernetes: api-ready
{%- endfor %}
