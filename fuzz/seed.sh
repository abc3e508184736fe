#!/bin/sh
# Fills the corpus of each target with the examples and the cases of the compiler's tests.
set -eu
cd "$(dirname "$0")"
for target in check fmt; do
    mkdir -p "corpus/$target"
    find ../examples ../compiler/tests ../benches -name '*.ks' | while read -r script; do
        cp "$script" "corpus/$target/$(echo "$script" | tr '/' '_' | tr -d '.')"
    done
done
