{#- Closed but for what the roles open. A policy in front of the zones opens our ports to their sources and leaves all
    other traffic to the operator's zones, SSH included; pods live in a zone of their own, which is never trusted. -#}
{%- from 'halite/host/firewall/map.jinja' import openings with context %}
{%- from 'halite/map.jinja' import node, is_kubernetes_node, runs_keepalived, control_plane_addresses with context %}
include:
  - halite.host.packages
{%- if pillar.halite.host.manageFirewall %}

firewalld:
  service.running:
    - enable: True
    - require:
        - pkg: host-packages
{%- if is_kubernetes_node %}

# First of all: firewalld accepts no change while a policy names a zone that is not there.
#
# Pods reach each other through the host, and of the host itself only what `halite-host` opens to them. What a Service
# sends to this host arrives rewritten and passes firewalld by its own rule for such connections.
halite-pods:
  firewalld.zone:
    - description: Pods
    - target: default
    - sources: [{{ pillar.halite.networks.pods }}]
{%- if pillar.halite.cni.plugin == 'flannel' %}
    - interfaces: [cni0, flannel.1]
{%- endif %}
    - forward: True
    - require:
        - service: firewalld
{%- endif %}

halite-host:
  firewalld.policy:
    - description: Ports of this host's roles, each open to its sources
    - ingress_zones: [ANY]
    - egress_zones: [HOST]
    - target: CONTINUE
    - priority: -100
    - rich_rules:
{%- for opening in openings %}
{%-   for source in opening.from | unique %}
        - rule family="ipv4" source address="{{ source }}" port port="{{ opening.port }}" protocol="{{ opening.protocol }}" accept
{%-   endfor %}
{%- endfor %}
{%- if runs_keepalived %}
{%-   for source in control_plane_addresses if source != node.controlPlane %}
        - rule family="ipv4" source address="{{ source }}" protocol value="vrrp" accept
{%-   endfor %}
{%- endif %}
    - require:
        - service: firewalld
{%- if is_kubernetes_node %}

halite-pods-out:
  firewalld.policy:
    - description: Pods may open connections to anywhere but the host
    - ingress_zones: [halite-pods]
    - egress_zones: [ANY]
    - target: ACCEPT
    - priority: -50
    - require:
        - firewalld: halite-pods
{%- endif %}

# What an earlier version or another role opened is closed again; foreign zones and policies are not ours to judge.
halite-firewall-owned:
  firewalld.owned:
    - zones: {{ (['halite-pods'] if is_kubernetes_node else []) | json }}
    - policies: {{ (['halite-host'] + (['halite-pods-out'] if is_kubernetes_node else [])) | json }}
    - require:
        - firewalld: halite-host
{%- endif %}
