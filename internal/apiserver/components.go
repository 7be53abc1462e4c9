// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/kindred-project/kindred/internal/registry/core"
)

// componentNames are the names of readiness checks as ComponentStatuses. The components run in this
// process; kube-apiserver queries their ports instead.
var componentNames = map[string]string{
	"controllers": "controller-manager",
	"scheduler":   "scheduler",
	"etcd":        "etcd-0",
}

// components returns the components that "kubectl get componentstatuses" shows.
func components(c Config) []core.Component {
	var out []core.Component
	store := healthz.NamedCheck("etcd", func(r *http.Request) error { return c.Backend.Check(r.Context()) })
	for _, check := range append(slices.Clone(c.ReadyChecks), store) {
		name, found := componentNames[check.Name()]
		if !found {
			continue
		}
		out = append(out, core.Component{Name: name, Check: func(ctx context.Context) error {
			return check.Check((&http.Request{}).WithContext(ctx))
		}})
	}
	return out
}
