{#- only: orchestration -#}
{#- Refuses to remove files from a host if another file system is mounted below a path to be
    removed: nothing is removed from a file system of the operator. Changes nothing. -#}
{%- from 'halite/map.jinja' import has_master with context %}
{%- from 'halite/leave/map.jinja' import mounted_below_own with context %}
unmounted:
  cmd.run:
    - name: {{ ("awk '" ~ mounted_below_own(bundles_may_be=has_master) ~ "' /proc/self/mountinfo || { echo 'unmount it, and run the same command again' >&2; exit 1; }") | json }}
