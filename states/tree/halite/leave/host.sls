{#- only: orchestration -#}
{#- Removes from a host that leaves the cluster what Halite installed there, except for the minion,
    which is removed last (halite.leave.minion). Packages and the data of pods and etcd stay; see
    halite.leave.packages and halite.leave.data. The host's earlier state is not restored: swap,
    other versions of packages. -#}
{%- from 'halite/map.jinja' import is_red_hat, has_master with context %}
{%- from 'halite/etcd.jinja' import etcd_is_external with context %}
include:
{%- if has_master %}
  # The master compiles from its bundle until it stops.
  - halite.services.bundle_server.stopped
{%- else %}
  - halite.services.bundle_server.absent
  - halite.services.master.absent
{%- endif %}
  - halite.services.site_registry.absent
  - halite.leave.etcd
  - halite.leave.kubectl

kubelet:
  service.dead:
    - enable: False

# Without a kubelet nothing restarts a container. Their processes, mounts and network are removed.
containers:
  cmd.run:
    - name: >-
        for id in $(ctr -n k8s.io tasks ls -q); do ctr -n k8s.io tasks kill --all --signal SIGKILL "$id"; done;
        for _ in $(seq 100); do ctr -n k8s.io tasks ls | grep -q RUNNING || break; sleep 0.1; done;
        ctr -n k8s.io containers ls -q | xargs -r ctr -n k8s.io containers rm; true
    - onlyif: systemctl --quiet is-active containerd
    - require:
        - service: kubelet

containerd:
  service.dead:
    - enable: False
    - require:
        - cmd: containers

# A container outlives its shim, and without containerd no task is listed above. Once the node is
# removed, its pods are recreated elsewhere: by then none of their processes may be left.
{%- set of_pods = "find /sys/fs/cgroup/kubepods* /sys/fs/cgroup/*/kubepods* -name cgroup.procs -exec cat {} + 2>/dev/null | grep -E '^[1-9]'" %}
{%- set tables = "nft list tables | grep -E ' (kube-proxy|cni_hostport|flannel-ipv[46])$'" %}
containers-gone:
  cmd.run:
    - name: >-
        pkill -KILL -f '[c]ontainerd-shim-runc-v2 .*-namespace k8s.io';
        for _ in $(seq 100); do pids=$({{ of_pods }}) || break; kill -KILL $pids 2>/dev/null; sleep 0.1; done;
        awk '$2 ~ "^(/var/lib/kubelet/|/run/containerd/|/run/netns/cni-)" { print $2 }' /proc/self/mounts | sort -r |
        xargs -r -n 1 umount;
        rm -rf /run/netns/cni-* /run/flannel;
        for link in cni0 flannel.1 kube-ipvs0; do ip link delete "$link" 2>/dev/null; done;
        for family in iptables ip6tables; do
        command -v $family-save >/dev/null || continue;
        $family-save | grep -qE 'KUBE-|FLANNEL|CNI-' || continue;
        $family-save | grep -vE 'KUBE-|FLANNEL|CNI-|flanneld' | $family-restore;
        done;
        {{ tables }} | while read -r table; do nft delete $table; done; true
    - onlyif: >-
        pgrep -f '[c]ontainerd-shim-runc-v2 .*-namespace k8s.io' || {{ of_pods }} || ls -d /run/netns/cni-* /run/flannel ||
        grep -qE ' (/var/lib/kubelet/|/run/containerd/)' /proc/self/mounts || ip link show cni0 || ip link show flannel.1 ||
        {{ tables }} || iptables-save | grep -qE 'KUBE-|FLANNEL'
    - require:
        - service: containerd
    # Its container was stopped with the others.
    - require_in:
        - cmd: {{ 'etcd-data-aside' if etcd_is_external else 'etcd-ended' }}
{%- set files = [
      '/etc/kubernetes',
      '/etc/cni/net.d/10-flannel.conflist',
      '/etc/containerd/config.toml',
      '/etc/containerd/certs.d',
      '/etc/systemd/system/containerd.service.d/halite-proxy.conf',
      '/etc/systemd/system/containerd.service.d/halite-limits.conf',
      '/etc/systemd/system/kubelet.service.d/20-halite.conf',
      '/etc/systemd/system/keepalived.service.d/halite.conf',
      '/var/lib/kubelet/pki',
      '/var/lib/kubelet/config.yaml',
      '/var/lib/kubelet/instance-config.yaml',
      '/var/lib/kubelet/kubeadm-flags.env',
      '/etc/sysctl.d/zz-halite.conf',
      '/etc/sysctl.d/99-halite.conf',
      '/etc/modules-load.d/halite.conf',
      '/etc/halite/pki/site-ca.crt',
    ] + (['/etc/yum.repos.d/halite.repo', '/etc/pki/rpm-gpg/RPM-GPG-KEY-halite',
          '/etc/pki/ca-trust/source/anchors/halite.pem'] if is_red_hat else
         ['/etc/apt/sources.list.d/halite.list', '/etc/apt/keyrings/halite.gpg', '/etc/apt/apt.conf.d/60halite', '/etc/apt/halite.preferences',
          '/etc/apt/halite', '/usr/local/share/ca-certificates/halite']) %}
{%- for path in files %}

{{ path }}:
  file.absent:
    - require:
        - cmd: etcd-data-aside
{%- endfor %}

# A link without Halite's mark is the operator's. The mark goes with the minion.
/etc/systemd/system/swap.target:
  file.absent:
    - onlyif: test -e /var/lib/halite/swap-masked
    - require:
        - cmd: etcd-data-aside

# The certificates of the site's own authorities are no longer trusted.
trust-store:
  cmd.run:
{%- if is_red_hat %}
    - name: update-ca-trust
    - onchanges:
        - file: /etc/pki/ca-trust/source/anchors/halite.pem
{%- else %}
    - name: update-ca-certificates && find /etc/ssl/certs -xtype l -delete && openssl rehash /etc/ssl/certs
    - onchanges:
        - file: /usr/local/share/ca-certificates/halite
{%- endif %}

# Configuration that Halite marked; any other stays.
/etc/keepalived/keepalived.conf:
  file.absent:
    - onlyif: grep -q '^# Written by Halite' /etc/keepalived/keepalived.conf

/etc/keepalived/check-apiserver:
  file.absent:
    - require:
        - file: /etc/keepalived/keepalived.conf

# The same for the local proxy.
haproxy:
  service.dead:
    - enable: False
    - onlyif: grep -q '^# Written by Halite' /etc/haproxy/haproxy.cfg

/etc/haproxy/haproxy.cfg:
  file.absent:
    - onlyif: grep -q '^# Written by Halite' /etc/haproxy/haproxy.cfg
    - require:
        - service: haproxy

/etc/haproxy/kubernetes-ca.crt:
  file.absent:
    - require:
        - file: /etc/haproxy/haproxy.cfg

{%- set unit = 'chronyd' if is_red_hat else 'chrony' %}

# With the distribution's configuration it would query servers on the internet.
{{ unit }}:
  service.dead:
    - enable: False
    - onlyif: test -e /etc/systemd/system/{{ unit }}.service.d/halite.conf

/etc/systemd/system/{{ unit }}.service.d/halite.conf:
  file.absent:
    - require:
        - service: {{ unit }}

/etc/chrony/halite.conf:
  file.absent:
    - require:
        - file: /etc/systemd/system/{{ unit }}.service.d/halite.conf
{%- if pillar.halite.host.manageFirewall %}

# firewalld stays, without Halite's zones, policies and sets.
firewall:
  firewalld.owned:
    - zones: []
    - policies: []
    - ipsets: []
    - onlyif: systemctl --quiet is-active firewalld
{%- endif %}
{%- set names = namespace(all=[pillar.halite.apiServer.endpoint]) %}
{%- for name in pillar.halite.nodes %}
{%-   set names.all = names.all + [name] %}
{%- endfor %}
{%- if pillar.halite.siteRegistry.address %}
{%-   set names.all = names.all + [pillar.halite.siteRegistry.name] %}
{%- endif %}
{%- set line = '^[0-9.]+([[:space:]]+(' ~ (names.all | sort | join('|') | replace('.', '[.]')) ~ '))+[[:space:]]*$' %}

halite-names:
  service.dead:
    - enable: False

/etc/systemd/system/halite-names.service:
  file.absent:
    - require:
        - service: halite-names

# These may be on the line of the host's full name, which stays.
api-name:
  host.absent:
    - name: {{ pillar.halite.apiServer.endpoint }}
    - ip: {{ pillar.halite.apiServer.address }}
    - require:
        - service: halite-names
{%- if pillar.halite.siteRegistry.address %}

site-registry-name:
  host.absent:
    - name: {{ pillar.halite.siteRegistry.name | json }}
    - ip: {{ pillar.halite.siteRegistry.address }}
    - require:
        - service: halite-names
{%- endif %}

# The cluster's names, on lines without another name.
cluster-names:
  cmd.run:
    - name: {{ ("sed -i -E '/^127[.]/!{/" ~ line ~ "/d}' /etc/hosts") | json }}
    - onlyif: grep -vE '^127[.]' /etc/hosts | grep -qE '{{ line }}'
    - require:
        - host: api-name

units:
  cmd.run:
    - name: >-
        rmdir --ignore-fail-on-non-empty /etc/systemd/system/kubelet.service.d /etc/systemd/system/containerd.service.d
        /etc/systemd/system/keepalived.service.d /etc/systemd/system/{{ unit }}.service.d 2>/dev/null; systemctl daemon-reload
    - onchanges:
        - file: /etc/systemd/system/containerd.service.d/halite-proxy.conf
        - file: /etc/systemd/system/containerd.service.d/halite-limits.conf
        - file: /etc/systemd/system/kubelet.service.d/20-halite.conf
        - file: /etc/systemd/system/keepalived.service.d/halite.conf
        - file: /etc/systemd/system/{{ unit }}.service.d/halite.conf
        - file: /etc/systemd/system/halite-names.service
