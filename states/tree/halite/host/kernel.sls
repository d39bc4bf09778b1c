{#- Kernel modules and parameters, both from the cluster document. -#}
{%- from 'halite/host/map.jinja' import sysctls with context %}
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
    # The file keeps the value after a reboot.
    - config: /etc/sysctl.d/99-halite.conf
{%- if pillar.halite.host.kernelModules %}
    - require:
        - kmod: kernel-modules
{%- endif %}
{%- endfor %}
{%- if not pillar.halite.host.kernelModules and not sysctls %}
{}
{%- endif %}
