{#- Images that the host will run, pulled before they are needed: a static pod then starts at once. -#}
{%- from 'images/map.jinja' import components with context %}
{%- from 'map.jinja' import serves_bundles with context %}
include:
  - base.containerd
{%- if serves_bundles %}
  - halite.bundle_server
{%- endif %}
{%- for component in components | sort %}

{{ pillar.images[component] }}:
  image.present:
    - parallel: True
    - require:
        - cmd: containerd-answers
{%-   if serves_bundles %}
        - http: bundle-server-answers
{%-   endif %}
{%- endfor %}
