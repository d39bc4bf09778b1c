#!/bin/sh
# Checks a sealed image with standard tools and minisign: by-hand.sh IMAGE KEY, where KEY is the line of the .pub file,
# received through another channel than the image. Of several signatures it uses the first.
set -eu
image=$1 key=$2 dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tail -c 2048 "$image" > "$dir/footer"
head -n 1 "$dir/footer" | grep -qx HALITE-SEAL-1
# The lines of the footer are: name, offset, size, SHA-256.
cut() { tail -c "+$(($2 + 1))" "$image" | head -c "$3"; }
cut $(grep '^statement ' "$dir/footer") > "$dir/statement"
cut $(grep -m 1 '^signature ' "$dir/footer") > "$dir/signature"
minisign -V -m "$dir/statement" -x "$dir/signature" -P "$key"
size=$(sed -n 's/^  "size": \(.*\),$/\1/p' "$dir/statement")
sha256=$(sed -n 's/^  "sha256": "\(.*\)",$/\1/p' "$dir/statement")
head -c "$size" "$image" | sha256sum | grep -qx "$sha256  -"
echo "the image is as it was signed"
