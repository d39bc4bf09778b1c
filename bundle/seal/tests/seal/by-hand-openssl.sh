#!/bin/sh
# Checks who signed a statement where there is no minisign: by-hand-openssl.sh STATEMENT SIGNATURE KEY (OpenSSL 3).
set -eu
statement=$1 signature=$2 key=$3 dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Ed25519 over the BLAKE2b of the statement. Both base64 lines begin with two letters and the eight bytes of the key's id.
openssl dgst -blake2b512 -binary "$statement" > "$dir/hash"
sed -n 2p "$signature" | base64 -d | tail -c 64 > "$dir/signature"
{ printf '\060\052\060\005\006\003\053\145\160\003\041\000'; echo "$key" | base64 -d | tail -c 32; } |
  openssl pkey -pubin -inform DER -out "$dir/key.pem"
openssl pkeyutl -verify -pubin -inkey "$dir/key.pem" -rawin -in "$dir/hash" -sigfile "$dir/signature"
