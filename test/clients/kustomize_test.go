// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"testing"

	"github.com/kindred-project/kindred/kindredtest"
)

// TestKustomize applies the output of Kustomize, both of upstream's own program and of the one in
// kubectl.
func TestKustomize(t *testing.T) {
	cluster := kindredtest.Start(t)
	kustomize := newUser(t, cluster, build(t, "kustomize", "sigs.k8s.io/kustomize/kustomize/v5"))
	kubectl := newUser(t, cluster, build(t, "kubectl", "."))

	built := kustomize.types("build", "app/production")
	kubectl.input(built, "apply", "--server-side", "-f", "-")
	kubectl.types("rollout", "status", "deployment/production-web", "--timeout=2m")
	kubectl.prints("3/3", "get", "deployment", "production-web", "-o", "wide")
	kubectl.prints("busybox:v1", "get", "deployment", "production-web", "-o", "wide")

	kubectl.types("diff", "-k", "app/production")
	kubectl.prints("production-web serverside-applied", "apply", "--server-side", "-k", "app/production")
	kubectl.types("delete", "-k", "app/production", "--wait")
}
