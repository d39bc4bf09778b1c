{#- Points the kubelet of a host whose control plane is about to leave to another API server, by its
    address: the API's name may resolve to this host. The states of its new roles restore the name.
    For the orchestration add_node. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/base/kubelet/kubeconfig.jinja' import kubeconfig, leads_to with context %}
{%- set ns = namespace(other='') %}
{%- for name, address in pillar.halite.apiServer.servers | dictsort %}
{%-   if name != node.name and not ns.other %}{% set ns.other = address %}{% endif %}
{%- endfor %}
{%- if ns.other %}
{{ kubeconfig }}:
  kubeconfig.managed:
{{- leads_to('https://' ~ ns.other ~ ':' ~ pillar.halite.apiServer.port) }}

kubelet:
  service.running:
    - watch:
        - kubeconfig: {{ kubeconfig }}
{%- else %}
no-other-api-server:
  test.fail_without_changes:
    - comment: no other control plane serves the API, so that of {{ node.name }} stays; add one with `ctl node add`
{%- endif %}
