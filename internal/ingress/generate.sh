#!/usr/bin/env bash
# Copyright The Kindred Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes the CRDs of the Gateway API that are served, of the standard channel and of the version in go.mod.
set -euo pipefail
from=$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard
for kind in gatewayclasses gateways httproutes grpcroutes tlsroutes referencegrants; do
	cat "$from/gateway.networking.k8s.io_$kind.yaml"
	echo "---"
done | gzip -n9 >gatewayapi.yaml.gz
