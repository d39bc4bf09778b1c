{#- Refuses states with earlier keys than the API server of this host has (decision 0096): those of an
    earlier stage of a rotation, or those of a master that never had the key with which the API server
    encrypts. With them it could not decrypt what the other API servers write. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/base/control_plane/keys.jinja' import key_file, keys, words_of_line with context %}
{%- set known = "case ' none " ~ keys.names | join(' ') ~ " ' in *\" ${2:-none} \"*) false;; esac" %}

# Before anything on the host is changed.
kube-apiserver-keys-not-later:
  test.fail_without_changes:
    - comment: >-
        cannot apply the states of the control plane {{ node.name }} at stage {{ keys.stage }} of the encryption keys: the control plane has a
        later stage of the rotation, or encrypts with a key that these states do not have, and would no longer read the Secrets in etcd.
        If these states were compiled before a stage of a rotation, run the same command again. If the master has lost keys, put back
        /var/lib/halite/master/encryption/keys.json from another master, or from a backup that is newer than the last rotation, then run
        the same command again. The first line of {{ key_file }} on {{ node.name }} names the stage.
    - onlyif: {{ (words_of_line ~ '; test "${1:-0}" -gt ' ~ keys.stage ~ ' || ' ~ known) | json }}
    - order: first
    - failhard: True
