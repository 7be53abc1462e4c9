#!/bin/sh
# Copyright The Kindred Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Generates zz_generated.validations.go in each package named on the command
# line, from the +k8s: tags of k8s.io/api. Packages that share types (a pod
# template) belong in one run.
#
# The generated code calls the validations of meta/v1 that k8s.io/apimachinery
# publishes. validation-gen finds them only if it may write them anew, so it is
# given a copy of that module to write to, by a go.mod of its own.
set -eu
cd "$(dirname "$0")"
generator=v0.37.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

root=$(go list -m -f '{{.Dir}}')
cp "$root/go.mod" "$root/go.sum" "$work"
cp -r "$(go list -m -f '{{.Dir}}' k8s.io/apimachinery)" "$work/apimachinery"
chmod -R u+w "$work/apimachinery"
go mod edit -replace "k8s.io/apimachinery=$work/apimachinery" "$work/go.mod"
GOBIN=$work go install "k8s.io/code-generator/cmd/validation-gen@$generator"

GOFLAGS="-mod=mod -modfile=$work/go.mod" "$work/validation-gen" \
	--go-header-file boilerplate.go.txt \
	--output-file zz_generated.validations.go \
	--readonly-pkg k8s.io/apimachinery/pkg/api/resource \
	--readonly-pkg k8s.io/apimachinery/pkg/runtime \
	--readonly-pkg k8s.io/apimachinery/pkg/types \
	--readonly-pkg k8s.io/apimachinery/pkg/util/intstr \
	--readonly-pkg time \
	k8s.io/apimachinery/pkg/apis/meta/v1/validation "$@"
