{#- The kubelet, configured as kubeadm does. Identity: docs/decisions/0004-kubelet-identity.md. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/base/map.jinja' import cri_socket, endpoint_url, is_replaced, kubeadm, kubelet_url, local_url with context %}
{%- from 'halite/base/kubelet/kubeconfig.jinja' import current, identity, kubeconfig, leads_to, user with context %}
{%- from 'halite/base/kept.jinja' import install, installed with context %}
{%- from 'halite/base/kubelet/kept.jinja' import directory, health, is_kept, record with context %}
{#- Older masters do not set these keys. -#}
{%- set has_serving_certificate = pillar.halite.kubelet.get('servingCertificate', pillar.halite.addons.metricsServer) %}
{%- set is_hardened = pillar.halite.get('profile') == 'hardened' %}
include:
  - halite.host.packages
  - halite.base.containerd
  - halite.base.network.host
  - halite.base.pki.kubernetes_ca
  - halite.base.kubelet.kept

/var/lib/kubelet:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'

/var/lib/kubelet/pki:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
    - require:
        - file: /var/lib/kubelet

/etc/kubernetes/manifests:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'
    - makedirs: True

/var/lib/kubelet/instance-config.yaml:
  file.managed:
    - contents: |
        containerRuntimeEndpoint: "{{ cri_socket }}"
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /var/lib/kubelet

/var/lib/kubelet/config.yaml:
  file.managed:
    - source: salt://halite/base/kubelet/config.yaml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '{{ '0600' if is_hardened else '0644' }}'
    - force: True
    - require:
        - file: /var/lib/kubelet

/var/lib/kubelet/kubeadm-flags.env:
  file.managed:
    - source: salt://halite/base/kubelet/kubeadm-flags.env.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /var/lib/kubelet

# The node's first client certificate, and the fallback. The kubelet requests its own successors
# before this one expires.
{{ identity }}:
  x509.certificate:
    - combined: True
    - ca: kubernetes
    - ca_certificate: {{ pillar.halite.pki.kubernetes.cert | json }}
    - common_name: {{ user }}
    - organization: ['system:nodes']
    - client_auth: True
    - require:
        - file: /var/lib/kubelet/pki

# The kubelet points this link at its newest certificate. The state repairs the link only if it does
# not point to a certificate.
kubelet-identity-in-place:
  file.symlink:
    - name: {{ current }}
    - target: {{ identity }}
    - force: True
    - unless: >-
        test -L {{ current }} && test -s {{ current }} &&
        case "$(readlink {{ current }})" in
        {{ identity }}|/var/lib/kubelet/pki/kubelet-client-2*.pem) true;; *) false;; esac
    - require:
        - x509: {{ identity }}

# A new first certificate was made because the old one had expired or was lost. The kubelet's own
# may have expired too.
kubelet-identity-renewed:
  file.symlink:
    - name: {{ current }}
    - target: {{ identity }}
    - force: True
    - onchanges:
        - x509: {{ identity }}

{%- if has_serving_certificate %}

# The kubelet's serving certificate, so that metrics-server and a hardened API server can verify it.
# It replaces the self-signed one at the same path.
/var/lib/kubelet/pki/kubelet.crt:
  x509.certificate:
    - ca: kubernetes
    - ca_certificate: {{ pillar.halite.pki.kubernetes.cert | json }}
    - common_name: {{ node.name | json }}
    - sans_dns: [{{ node.name | json }}]
    - sans_ip: [{{ node.controlPlane }}]
    - server_auth: True
    - require:
        - file: /var/lib/kubelet/pki
{%- endif %}

{{ kubeconfig }}:
  kubeconfig.managed:
{{- leads_to(kubelet_url) }}
{%- if kubelet_url == local_url %}
    # A worker that becomes a control plane keeps its current path to the API until its own API
    # server serves: it stays Ready.
    - unless: >-
        grep -qsxF '    server: {{ endpoint_url }}' {{ kubeconfig }} && ! curl --silent --fail --output /dev/null --max-time 2
        --noproxy '*' --cacert /etc/kubernetes/pki/ca.crt {{ local_url }}/readyz
{%- endif %}
    - require:
        - file: /etc/kubernetes/manifests

# Start order at boot: a kubelet that finds no runtime exits, and systemd restarts it only ten
# seconds later.
/etc/systemd/system/kubelet.service.d/20-halite.conf:
  file.managed:
    - source: salt://halite/base/kubelet/order.conf
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

kubelet:
  service.running:
    - enable: True
    - unmask: True
    - only_drop_ins: [20-halite.conf]
    - require:
        - pkg: host-packages
        - cmd: containerd-answers
        - file: /etc/systemd/system/kubelet.service.d/20-halite.conf
        - file: /etc/kubernetes/manifests
        - file: kubelet-identity-in-place
{%- if has_serving_certificate %}
        - x509: /var/lib/kubelet/pki/kubelet.crt
{%- endif %}
    - watch:
        - file: /etc/kubernetes/pki/ca.crt
        - file: /var/lib/kubelet/config.yaml
        - file: /var/lib/kubelet/kubeadm-flags.env
        - x509: {{ identity }}
{%- if has_serving_certificate and not kubeadm.reloads_serving_certificate %}
        - x509: /var/lib/kubelet/pki/kubelet.crt
{%- endif %}
        - kubeconfig: /etc/kubernetes/kubelet.conf

# A package is replaced while the old program keeps running; containers survive a restart of the
# kubelet.
kubelet-program:
  cmd.run:
    - name: systemctl restart kubelet.service
    - onlyif: {{ is_replaced('kubelet.service') | json }}
    - require:
        - service: kubelet
{%- if is_kept %}
{#- In bash, because not every host has curl. -#}
{%- set answers = "timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/" ~ health ~ "; echo GET /healthz HTTP/1.0 >&3; echo >&3; head -n 1 <&3' 2>/dev/null | grep -q ' 200 '" %}

# A kubelet whose package was replaced, and that does not start, gets its old package and
# configuration back, and the run stops at this host. Containers run without it.
kubelet-starts:
  cmd.run:
    - name: >-
        serves() { for _ in $(seq 120); do {{ answers }} && return; sleep 0.5; done; return 1; };
        if serves; then exit; fi; cd {{ directory }} || exit; kept=$(cat {{ record }});
        reason=$(journalctl --unit kubelet --lines 5 --output cat --no-pager 2>/dev/null);
        for file in config.yaml kubeadm-flags.env; do cp -p $file /var/lib/kubelet/.kept && mv /var/lib/kubelet/.kept
        /var/lib/kubelet/$file; done;
        back="the previous package ($kept) and its configuration are back, and it runs";
        neither="neither the new kubelet nor the previous one ($kept) starts";
        {{ install() | indent(8) }} || { code=$?;
        back="the previous package ($kept) cannot be installed (exit code $code), but it starts with the previous configuration";
        neither="the new kubelet does not start, and the previous package ($kept) cannot be installed (exit code $code)"; };
        systemctl daemon-reload; systemctl reset-failed kubelet.service; systemctl restart kubelet.service;
        if serves; then echo "the new kubelet does not start; $back. The last lines of the new one: $reason" >&2; exit 1; fi;
        echo "$neither: see \`journalctl -u kubelet\`; correct that, then run \`ctl highstate\`. The last lines of the new one:
        $reason" >&2; exit 1
    - onlyif: {{ ('test -s ' ~ directory ~ '/' ~ record ~ ' && test "$(' ~ installed('kubelet') ~ ')" != "$(cat ' ~ directory ~ '/' ~ record ~ ')"') | json }}

# Not before the new program runs: the old one serves until its restart.
{{ directory }}:
  file.absent:
    - require:
        - cmd: kubelet-program
        - cmd: kubelet-starts
{%- endif %}
{%- if health %}

# A kubelet that does not start stops an upgrade at this host.
kubelet-answers:
  http.wait_for_successful_query:
    - name: http://127.0.0.1:{{ health }}/healthz
    - wait_for: 60
    - onchanges:
        - cmd: kubelet-program
{%- endif %}
