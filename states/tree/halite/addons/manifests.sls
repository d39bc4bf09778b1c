{#- The operator's own Kubernetes manifests (/etc/halite/custom/manifests), each file a set. They come
    last: they may use what addons and charts define. -#}
{%- from 'halite/addons/map.jinja' import sets, ours with context %}
{#- The files by set: path in the tree. A name with `.j2` at its end is a template; files that a
    template imports (.jinja) and notes (.md) are not applied, nor is anything hidden. -#}
{%- set folder = 'custom/manifests/' %}
{%- set own = namespace(files={}, sets=sets) %}
{%- for path in salt['cp.list_master'](prefix=folder) if '/.' not in path and not path.endswith(('~', '.jinja', '.md')) %}
{%-   set parts = path | regex_match('custom/manifests/([A-Za-z0-9][-A-Za-z0-9_./]*)[.](?:yaml|yml|json)(?:[.]j2)?$') %}
{%-   if not parts %}
{{-     raise('cannot apply /etc/halite/' ~ path ~ ': a manifest is called NAME.yaml, or NAME.yaml.j2 if it is a template; NAME has letters, digits, `-`, `_` and `.`') }}
{%-   endif %}
{%-   set named = 'manifest-' ~ (parts[0] | replace('/', '.')) %}
{%-   if named | length > 63 or named.endswith(('-', '_', '.')) %}
{{-     raise('cannot apply /etc/halite/' ~ path ~ ': the name of a manifest has at most 54 characters, with its folders, and ends in a letter or digit') }}
{%-   endif %}
{%-   if named in own.files %}
{{-     raise('cannot apply /etc/halite/' ~ path ~ ': it has the same name as /etc/halite/' ~ own.files[named] ~ '; rename one of them') }}
{%-   endif %}
{%-   set own.files = salt['slsutil.merge'](own.files, {named: path}) %}
{%-   set own.sets = own.sets + [named] %}
{%- endfor %}
include:
  - halite.base.kubeadm_objects
  - halite.addons.owned

# Only this SLS knows the objects that move from one file to another. A run without it removes none
# of them.
extend:
  addons-owned:
    kubernetes.owned:
      - sets: {{ own.sets | json }}
      - among: {{ (ours + ['manifest-*']) | json }}
{%- for name, path in own.files | dictsort %}

{{ name }}:
  kubernetes.manifest:
    - source: salt://{{ path }}
{%-   if path.endswith('.j2') %}
    - template: jinja
{%-   endif %}
    - set: {{ name | json }}
    - require:
        - kubernetes: api-ready
{%- endfor %}
