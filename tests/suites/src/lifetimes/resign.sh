# Signs each certificate that Halite has made on this host again, with the same key, subject and names, and
# another lifetime. $1 and $2 are its first and last second, as YYYYMMDDHHMMSSZ. The directory of this file has the CAs.
# With "identities" as $3, those of the minion and the master too.
set -eu
cd "$(dirname "$0")"
begin=$1 end=$2 more=${3:-}
: > index
cat > ca.cnf <<'CONFIG'
[ca]
default_ca = own
[own]
database = index
new_certs_dir = .
default_md = sha256
policy = any
preserve = yes
copy_extensions = copyall
unique_subject = no
rand_serial = yes
[any]
organizationName = optional
commonName = supplied
CONFIG

# The certificate in a file, with the key in another, by a CA: into new.crt.
sign() {
  openssl x509 -x509toreq -in "$1" -signkey "$2" -copy_extensions copyall -out one.csr
  openssl ca -batch -notext -config ca.cnf -cert "$3.crt" -keyfile "$3.key" -startdate "$begin" -enddate "$end" \
    -in one.csr -out new.crt 2>log || { cat log >&2; return 1; }
}

pair() {
  test -e "$1" || return 0
  sign "$1" "${1%.crt}.key" "$2"
  cat new.crt > "$1"
}

combined() {
  test -e "$1" || return 0
  sign "$1" "$1" "$2"
  { cat new.crt; openssl pkey -in "$1"; } > both
  cat both > "$1"
}

kubeconfig() {
  test -e "$1" || return 0
  sed -n 's/.*client-certificate-data: //p' "$1" | base64 -d > one.crt
  sed -n 's/.*client-key-data: //p' "$1" | base64 -d > one.key
  sign one.crt one.key kubernetes
  sed -i "s|client-certificate-data: .*|client-certificate-data: $(base64 -w0 new.crt)|" "$1"
}

pki=${ROOT:-}/etc/kubernetes/pki
for name in apiserver apiserver-kubelet-client; do pair "$pki/$name.crt" kubernetes; done
for name in server peer healthcheck-client; do pair "$pki/etcd/$name.crt" etcd; done
pair "$pki/apiserver-etcd-client.crt" etcd
pair "$pki/front-proxy-client.crt" front-proxy
for name in admin super-admin controller-manager scheduler; do kubeconfig "${ROOT:-}/etc/kubernetes/$name.conf"; done
pair "${ROOT:-}/etc/halite/pki/server.crt" site
pair "${ROOT:-}/etc/halite/registry/server.crt" site
pair "${ROOT:-}/etc/halite/operator/operator.crt" halite
combined "${ROOT:-}/var/lib/kubelet/pki/kubelet-client-halite.pem" kubernetes
if test -n "$more"; then
  pair "${ROOT:-}/var/lib/halite/minion/identity.crt" halite
  pair "${ROOT:-}/var/lib/halite/master/identity.crt" halite
  # The kubelet's own successors of the first one.
  for file in "${ROOT:-}"/var/lib/kubelet/pki/kubelet-client-2*.pem; do combined "$file" kubernetes; done
fi
