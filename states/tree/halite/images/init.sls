{#- Images that the host will run, pulled in advance so that a static pod starts at once. -#}
{%- from 'halite/images/map.jinja' import components with context %}
{%- from 'halite/map.jinja' import serves_bundles with context %}
include:
  - halite.base.containerd
{%- if serves_bundles %}
  - halite.services.bundle_server
{%- endif %}
{%- for component in components | sort %}

{{ pillar.halite.images[component] }}:
  image.present:
    - parallel: True
    - require:
        - cmd: containerd-answers
{%-   if serves_bundles %}
        - http: bundle-server-answers
{%-   endif %}
{%- endfor %}
