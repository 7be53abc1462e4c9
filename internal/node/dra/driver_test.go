// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"testing"
	"time"

	clienttesting "k8s.io/client-go/testing"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

func TestServices(t *testing.T) {
	for _, test := range []struct {
		supported []string
		want      string
	}{
		{[]string{drapbv1beta1.DRAPluginService, drapb.DRAPluginService}, ""},
		{[]string{drapbv1beta1.DRAPluginService}, ""},
		{nil, "empty list of supported gRPC services (aka supported versions)"},
		{[]string{"1.0.0"}, `none of services supported by the plugin (["1.0.0"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])`},
	} {
		err := (&Manager{}).Validate("d", "/e", test.supported)
		want := test.want
		if want != "" {
			want = "invalid supported gRPC versions of DRA driver plugin d at endpoint /e: " + want
		}
		check(t, "validate", err, want)
	}
}

// TestInstances: while a driver is updated, the newest instance gets the calls; when it is gone, the older one.
func TestInstances(t *testing.T) {
	older, newer := newDriver(t, "d", withV1), newDriver(t, "d", withV1)
	w := newWorld(t, older, newer)
	waitUntil(t, "the newer instance is not chosen", func() bool { return w.connected(newer) })
	w.Deregister(t.Context(), "d", newer.endpoint)
	waitUntil(t, "the older instance is not chosen", func() bool { return w.connected(older) })
	w.register(older, drapb.DRAPluginService)
	if got := len(w.drivers.byName["d"]); got != 1 {
		t.Errorf("%d instances after the older one registered again", got)
	}
}

// wiped returns the selectors of the ResourceSlices that were removed since its last call.
func (w *world) wiped() []string {
	var selectors []string
	for _, action := range w.client.Actions() {
		if d, ok := action.(clienttesting.DeleteCollectionAction); ok {
			selectors = append(selectors, d.GetListRestrictions().Fields.String())
		}
	}
	w.client.ClearActions()
	return selectors
}

// TestSlicesOfLostDriver: the ResourceSlices of a driver are removed 30 s after its process has ended, unless
// it comes back; and those of all drivers when the agent starts.
func TestSlicesOfLostDriver(t *testing.T) {
	d := newDriver(t, "d", withV1)
	w := newWorld(t)
	w.WipeAll(t.Context())
	expect(t, "at the start", w.wiped(), []string{"spec.nodeName=n"})
	// pending waits until the slices are to be removed, or are not.
	pending := func(want bool) {
		t.Helper()
		waitUntil(t, "the removal of ResourceSlices is not as expected", func() bool {
			w.drivers.mu.Lock()
			defer w.drivers.mu.Unlock()
			_, is := w.drivers.wipes["d"]
			return is == want
		})
	}
	w.register(d, drapb.DRAPluginService)
	pending(false)
	w.Deregister(t.Context(), "d", d.endpoint)
	pending(true)
	w.clock.Step(wipeDelay - 1)
	w.register(d, drapb.DRAPluginService)
	pending(false)
	w.clock.Step(wipeDelay)
	expect(t, "while the driver is there", w.wiped(), []string(nil))

	w.Deregister(t.Context(), "d", d.endpoint)
	pending(true)
	w.clock.Step(wipeDelay)
	pending(false)
	expect(t, "of the lost driver", w.wiped(), []string{"spec.driver=d,spec.nodeName=n"})
}

// TestLostConnection: a driver that was killed leaves its sockets, and is noticed all the same. Its ResourceSlices
// are removed once, although gRPC goes on trying to connect.
func TestLostConnection(t *testing.T) {
	d := &fakeDriver{name: "d", endpoint: t.TempDir() + "/dra.sock"}
	server := d.serve(t, withV1)
	w := newWorld(t)
	w.register(d, drapb.DRAPluginService)
	connected := func() bool { return w.connected(d) }
	waitUntil(t, "the driver is not connected", connected)
	server.Stop()
	waitUntil(t, "the lost connection is not noticed", func() bool { return !connected() })
	pending := func() bool {
		w.drivers.mu.Lock()
		defer w.drivers.mu.Unlock()
		_, is := w.drivers.wipes["d"]
		return is
	}
	w.clock.Step(wipeDelay)
	waitUntil(t, "the ResourceSlices are not removed", func() bool { return !pending() })
	for range 15 {
		time.Sleep(100 * time.Millisecond) // the first new attempt follows after a second
		if pending() {
			t.Fatal("the ResourceSlices are to be removed again")
		}
	}
	again := d.serve(t, withV1)
	defer again.Stop()
	waitUntil(t, "the driver is not connected again", connected)
}
