// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"

	"k8s.io/klog/v2"
)

// mend restores the bridge, routes and rules that another program removed or changed, and logs that as one line.
func (n *Network) mend(ctx context.Context) {
	var restored []string
	done := func(part string, was bool, err error) {
		n.unmended.log(part, err)
		if was && err == nil {
			restored = append(restored, part)
		}
	}
	if n.options.PodNetwork != nil {
		was, err := n.options.PodNetwork.EnsureBridge()
		done("the bridge of pods", was, err)
	}
	was, err := n.ensureRoutes()
	done("the routes to Services", was, err)
	was, err = n.podRoutes.ensure()
	done("the routes to pods of other nodes", was, err)
	changed := n.watching.changedByOthers()
	if n.options.PodNetwork != nil && (changed || legacyTables()) {
		was, err := n.options.PodNetwork.EnsureFirewall(ctx)
		if was {
			n.peers.written = false
		}
		done("the rules that accept and masquerade packets of pods", was, err)
	}
	if changed {
		n.mendTable(ctx, done)
	}
	if len(restored) > 0 {
		klog.InfoS("Another program changed the node's network; it is restored", "parts", restored)
	}
}

func (n *Network) mendTable(ctx context.Context, done func(part string, was bool, err error)) {
	n.watching.check(func() bool {
		intact, err := n.table.Intact(ctx)
		done("the rules of Services and policies", !intact, err)
		if err == nil && !intact {
			n.table.Forget()
		}
		return err == nil && intact
	})
}

// unmended has the last error of each part that cannot be restored.
type unmended map[string]string

// log logs an error, once if it is repeated.
func (u unmended) log(part string, err error) {
	if err == nil {
		delete(u, part)
		return
	}
	if u[part] != err.Error() {
		u[part] = err.Error()
		klog.ErrorS(err, "A part of the node's network cannot be restored; it is tried again every two seconds", "part", part)
	}
}
