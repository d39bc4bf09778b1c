{#- The program of etcd, extracted from its image, which containerd has. An upgrade adds the next
    one next to it. -#}
{%- from 'halite/base/etcd/map.jinja' import directory with context %}
{%- from 'halite/images/stored.jinja' import stored %}
etcd-program:
  cmd.run:
    - name: |
        set -e
        mounted=/run/halite-etcd-image
        free() { ctr --namespace k8s.io images unmount --rm "$mounted" >/dev/null 2>&1 || umount "$mounted" 2>/dev/null || true; }
        free
        mkdir -p "$mounted" {{ directory }}
        trap 'free; rmdir "$mounted"' EXIT
        ctr --namespace k8s.io images mount {{ stored(pillar.halite.images.etcd) }} "$mounted" >/dev/null
        install -m 0755 "$mounted/usr/local/bin/etcd" {{ directory }}/.new
        cd {{ directory }}
        sum=$(sha256sum .new)
        echo "${sum%% *}  etcd" > .sum
        sync .new .sum
        mv -T .new etcd
        mv -T .sum etcd.sha256
        sync .
    - unless: cd {{ directory }} && sha256sum --status --check etcd.sha256
