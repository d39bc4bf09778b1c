{#- Kernel modules and parameters, both from the cluster document. -#}
{%- from 'halite/map.jinja' import is_kubernetes_node with context %}

{#- Kernel parameters. The pillar's values win; null leaves a parameter unchanged. -#}
{%- set bridge_sysctls = {'net.bridge.bridge-nf-call-iptables': 1, 'net.bridge.bridge-nf-call-ip6tables': 1}
                         if 'br_netfilter' in pillar.halite.host.kernelModules else {} %}
{#- A control-plane host alone has more than 30 instances of inotify; distributions allow 128. -#}
{%- set inotify_sysctls = {'fs.inotify.max_user_instances': 8192, 'fs.inotify.max_user_watches': 524288} %}
{%- set default_sysctls = salt['slsutil.merge'](salt['slsutil.merge']({'net.ipv4.ip_forward': 1}, inotify_sysctls), bridge_sysctls)
                         if is_kubernetes_node else {} %}
{%- set sysctls = salt['slsutil.merge'](default_sysctls, pillar.halite.host.sysctls) %}
{%- if pillar.halite.host.kernelModules %}
kernel-modules:
  kmod.present:
    - mods: {{ pillar.halite.host.kernelModules | json }}
    - persist: True
{%- endif %}
{%- for key, value in sysctls | dictsort if value is not none %}
{{ key }}:
  sysctl.present:
    - value: {{ value | json }}
    # The file keeps the value after a reboot. It sorts after 99-sysctl.conf, which distributions
    # link to /etc/sysctl.conf.
    - config: /etc/sysctl.d/zz-halite.conf
{%- if pillar.halite.host.kernelModules %}
    - require:
        - kmod: kernel-modules
{%- endif %}
{%- endfor %}
{%- if not pillar.halite.host.kernelModules and not sysctls %}
{}
{%- endif %}
