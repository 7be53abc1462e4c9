#!/bin/sh
# Copyright The Kindred Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes zz_generated.deepcopy.go. zz_generated.model_name.go comes with the OpenAPI
# definitions, from internal/apiserver/openapi.
set -eu
cd "$(dirname "$0")"
version=$(go list -m -f '{{.Version}}' k8s.io/api)
go run "k8s.io/code-generator/cmd/deepcopy-gen@$version" \
	--go-header-file ../../../internal/apiserver/openapi/header.txt \
	--output-file zz_generated.deepcopy.go \
	github.com/kindred-project/kindred/apis/ownership/v1alpha1
