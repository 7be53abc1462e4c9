// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// TestBusyServer checks that a write that fails because the server is busy is not reported as a
// problem. The next request retries it, and nothing is released or lost before.
func TestBusyServer(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, err := range map[string]error{
		"late":      apierrors.NewTimeoutError("request did not complete", 0),
		"busy":      apierrors.NewTooManyRequests("busy", 1),
		"no leader": apierrors.NewServerTimeout(secrets, "create", 0),
		"conflict":  apierrors.NewConflict(secrets, "child", errBroken),
		"no answer": &net.OpError{Op: "read", Err: timeout{}},
	} {
		for _, write := range []string{"create secrets", "patch secrets", "update secrets/status", "update configmaps"} {
			t.Run(name+" "+write, func(t *testing.T) {
				child := object("Secret", "child", ownedBy("root"), set("kept", "status", "memory"))
				w := deleted(t, []*unstructured.Unstructured{object("ConfigMap", "root"), child})
				w.on("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
					// A create drops the status if the kind has a status subresource.
					unstructured.RemoveNestedField(action.(clienttesting.CreateActionImpl).Object.(*unstructured.Unstructured).Object, "status")
					return false, nil, nil
				})
				failing := true
				w.on("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
					said := strings.TrimSuffix(action.GetVerb()+" "+action.GetResource().Resource+"/"+action.GetSubresource(), "/")
					create, creates := action.(clienttesting.CreateActionImpl)
					dry := creates && len(create.CreateOptions.DryRun) > 0
					return failing && said == write && !dry, nil, err
				})
				report, failed := w.cluster.Run(t.Context(), request("ConfigMap", "root"))
				if failed != nil || report.Phase != ownership.UndeletionIncomplete || len(report.Problems) > 0 || len(report.Warnings) > 0 || !strings.HasPrefix(report.Waiting, "the server was busy; the next request retries: ") {
					t.Fatalf("%v, %s, problems %q, warnings %q, waiting for %q", failed, report.Phase, report.Problems, report.Warnings, report.Waiting)
				}
				if isFree(w.get(t, "ConfigMap", "root")) {
					t.Error("the root is released")
				}
				failing = false
				report = w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "child Restored")
				if memory, _, _ := unstructured.NestedString(w.get(t, "Secret", "child").Object, "status", "memory"); memory != "kept" || len(report.Warnings) > 0 {
					t.Errorf("status %q, warnings %q", memory, report.Warnings)
				}
			})
		}
	}
}

// timeout is a network error.
type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// TestBriefRequests checks that a short timeout ends a request early, but not before four times the
// time that it read, and that several requests complete the work.
func TestBriefRequests(t *testing.T) {
	for reading, want := range map[time.Duration][]int{0: {2, 4, 6}, 2 * time.Second: {8, 9}} {
		chain := []*unstructured.Unstructured{object("ConfigMap", "c0")}
		for i := range 8 {
			chain = append(chain, object("ConfigMap", fmt.Sprint("c", i+1), ownedBy(chain[i].GetUID())))
		}
		w := deleted(t, chain)
		w.on("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) == 0 {
				w.clock.Step(time.Second)
			}
			return false, nil, nil
		})
		w.cluster.Resources = func() []graph.Resource { w.clock.Step(reading); return resources }
		brief := request("ConfigMap", "c0")
		brief.Work = 2 * time.Second
		var got []int
		for range want {
			report, err := w.cluster.Run(t.Context(), brief)
			if err != nil {
				t.Fatal(err)
			}
			restored := 0
			for _, item := range report.Items {
				if item.now != nil {
					restored++
				}
			}
			got = append(got, restored)
		}
		if !slices.Equal(got, want) {
			t.Errorf("reads for %s: %v restored after each request, want %v", reading, got, want)
		}
	}
}
