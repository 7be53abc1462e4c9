#!/usr/bin/env bash
# Writes zz_generated.openapi.go: the OpenAPI definitions of the GA types and of our own; and in
# older, those of the versions that are off by default.
set -euo pipefail
cd "$(dirname "$0")"
version=$(go list -m -f '{{.Version}}' k8s.io/kube-openapi)
api() { printf 'k8s.io/api/%s ' "$@"; }
k8s="$(api admissionregistration/v1 apps/v1 authentication/v1 authorization/v1 \
    autoscaling/v1 autoscaling/v2 batch/v1 certificates/v1 coordination/v1 core/v1 discovery/v1 events/v1 \
    flowcontrol/v1 networking/v1 node/v1 policy/v1 rbac/v1 resource/v1 scheduling/v1 scheduling/v1alpha3 storage/v1 storagemigration/v1) \
  k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime \
  k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version \
  k8s.io/metrics/pkg/apis/metrics/v1 k8s.io/metrics/pkg/apis/metrics/v1beta1"
# generate DIRECTORY READ-ONLY-PACKAGES PACKAGES writes the definitions of the types of all packages.
generate() {
  # shellcheck disable=SC2046,SC2086
  go run "k8s.io/kube-openapi/cmd/openapi-gen@$version" \
    --go-header-file header.txt --output-dir "$1" --output-file zz_generated.openapi.go \
    --output-pkg "$(go list "./$1")" --output-model-name-file zz_generated.model_name.go \
    $(printf -- '--readonly-pkg %s ' $2) \
    --report-filename /dev/null $3 $2
}
generate . "$k8s" github.com/kindred-project/kindred/apis/ownership/v1alpha1
generate older "$(api apps/v1beta1 apps/v1beta2 extensions/v1beta1 scheduling/v1beta1)" ""
# Types of packages that were not read are named by import path: replace it by the name of the model.
sed -E -i '/^func /,$ {
  s#"k8s\.io/(api|apimachinery)/#"io.k8s.\1.#g
  :slash
  s#"(io\.k8s\.[^"]*)/([^"]*)"#"\1.\2"#
  t slash
}' older/zz_generated.openapi.go
