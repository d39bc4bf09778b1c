{#- The firewall opens only the ports of the host's roles. A policy before all zones opens each port
    to its sources, and leaves all other traffic to the operator's zones, SSH included. Pods are in
    their own zone, which is never trusted. -#}
{%- from 'halite/host/firewall/map.jinja' import openings with context %}
{%- from 'halite/map.jinja' import node, is_kubernetes_node, runs_keepalived, control_plane_addresses with context %}
include:
  - halite.host.packages
{%- if pillar.halite.host.manageFirewall %}

firewalld:
  service.running:
    - enable: True
    - unmask: True
    - require:
        - pkg: host-packages
{%- if is_kubernetes_node %}

# The zone comes first: firewalld accepts no change while a policy names a zone that does not exist.
#
# Pods reach each other through the host; on the host itself they reach only what `halite-host`
# opens to them. Traffic that a Service forwards to this host has a rewritten destination, and
# firewalld's own rule for such connections accepts it.
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

# Removes the zones and policies of an earlier version or role. Those without the prefix `halite-`
# stay.
halite-firewall-owned:
  firewalld.owned:
    - zones: {{ (['halite-pods'] if is_kubernetes_node else []) | json }}
    - policies: {{ (['halite-host'] + (['halite-pods-out'] if is_kubernetes_node else [])) | json }}
    - require:
        - firewalld: halite-host
{%- endif %}
