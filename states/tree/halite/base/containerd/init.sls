{%- from 'halite/base/containerd/hosts.jinja' import proxy_drop_in with context %}
{%- from 'halite/base/map.jinja' import is_replaced with context %}
{%- from 'halite/base/kept.jinja' import install with context %}
{%- from 'halite/base/containerd/kept.jinja' import directory, record with context %}
{%- set answers = "ctr plugins ls | grep -Eq '^io.containerd.grpc.v1 +cri .* ok *$'" %}
{%- set limits = pillar.halite.containerd.get('limits', {}) %}
# The container runtime, with the bundle as its only registry unless others are declared.
include:
  - halite.host.repository
  - halite.host.packages
  - halite.host.trust
  - halite.base.containerd.kept
  - halite.base.containerd.servers

/etc/containerd/config.toml:
  file.managed:
    - source: salt://halite/base/containerd/config.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

# containerd is the only program on a host that connects to servers outside the site.
/etc/systemd/system/containerd.service.d/halite-proxy.conf:
{%- if pillar.halite.proxy.http or pillar.halite.proxy.https %}
  file.managed:
    - contents: {{ proxy_drop_in() | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
{%- else %}
  file.absent: []
{%- endif %}
{%- if limits.get('nofile') %}

# Containers inherit it. containerd's next state removes the file if it is not declared any more.
/etc/systemd/system/containerd.service.d/halite-limits.conf:
  file.managed:
    - contents: |
        # Written by Halite.
        [Service]
        LimitNOFILE={{ limits.nofile }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
{%- endif %}

containerd:
  service.running:
    - enable: True
    - unmask: True
    - only_drop_ins: [halite-proxy.conf{{ ', halite-limits.conf' if limits.get('nofile') }}]
    - require:
        - pkg: host-packages
        - file: /etc/containerd/certs.d/_default/hosts.toml
    - watch:
        - file: /etc/containerd/config.toml
        - file: /etc/systemd/system/containerd.service.d/halite-proxy.conf
{%- if limits.get('nofile') %}
        - file: /etc/systemd/system/containerd.service.d/halite-limits.conf
{%- endif %}
        # containerd reads the host's trust store only at its start.
        - cmd: trust-store
        - cmd: trust-store-whole

# A package is replaced while the old program keeps running. Containers do not notice the restart.
containerd-program:
  cmd.run:
    - name: systemctl restart containerd.service
    - onlyif: {{ is_replaced('containerd.service') | json }}
    - require:
        - service: containerd

# containerd keeps running when its CRI plugin cannot be loaded (one wrong key in its configuration
# is enough), and the kubelet would retry forever. This state fails instead, with the reason.
# `unless` also succeeds while containerd is stopped: a test run has not started it, and a real run
# started it in the previous state. One that ended since is about to be started again by systemd.
containerd-answers:
  cmd.run:
    - name: >-
        for _ in $(seq 120); do {{ answers }} && exit 0; sleep 0.5; done;
        echo 'containerd runs, but its CRI does not answer: `ctr plugins ls` shows what could not be loaded, `journalctl -u
        containerd` says why; keys of its configuration come from containerd.config in the cluster document' >&2; exit 1
    - unless: {{ ('case "$(systemctl is-active containerd)" in active|activating) ' ~ answers ~ ';; esac') | json }}
    - require:
        - cmd: containerd-program

# The host must not stay without a runtime because its new one is faulty (docs/decisions/0106). The
# run fails in any case: the states above have failed.
containerd-restored:
  cmd.run:
    - name: >-
        cd {{ directory }} || exit; kept=$(echo $(cat {{ record }}));
        reason=$(journalctl --unit containerd --lines 5 --output cat --no-pager 2>/dev/null);
        if test -e config.toml; then cp -p config.toml /etc/containerd/.kept && mv /etc/containerd/.kept /etc/containerd/config.toml;
        else rm -f /etc/containerd/config.toml; fi;
        back="the previous packages ($kept) and configuration are back, and serve";
        neither="neither the new container runtime nor the previous one ($kept) serves";
        {{ install() | indent(8) }} || { code=$?;
        back="the previous packages ($kept) cannot be installed (exit code $code), but it serves with the previous configuration";
        neither="the new container runtime does not serve, and the previous packages ($kept) cannot be
        installed (exit code $code)"; };
        systemctl daemon-reload; systemctl reset-failed containerd.service; systemctl restart containerd.service;
        for _ in $(seq 120); do if systemctl --quiet is-active containerd && {{ answers }}; then
        echo "the new container runtime does not serve; $back. The last lines of the new one: $reason" >&2; exit 1; fi; sleep 0.5; done;
        echo "$neither: see \`journalctl -u containerd\`; correct that, then run \`ctl highstate\`. The last lines of the new one:
        $reason" >&2; exit 1
    - onlyif: {{ ('test -s ' ~ directory ~ '/' ~ record ~ ' && ! { systemctl --quiet is-active containerd && ' ~ answers ~ '; }') | json }}
    - onfail:
        - service: containerd
        - cmd: containerd-program
        - cmd: containerd-answers

{{ directory }}:
  file.absent:
    - require:
        - cmd: containerd-answers
