// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestNamespace: clusterctl demands a flag --namespace of each manager, and passes it empty.
func TestNamespace(t *testing.T) {
	for _, namespace := range []string{"", "some"} {
		o, err := parse([]string{"--namespace=" + namespace, "--kindred-version=v1.37.1"})
		if err != nil || o.namespace != namespace {
			t.Errorf("--namespace=%s: %q, %v", namespace, o.namespace, err)
		}
	}
}
