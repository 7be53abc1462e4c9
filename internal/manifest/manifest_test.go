// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\nspec:\n  containers: [{name: c, image: web:v1}]\n"

func keep(*v1.Pod) error { return nil }

// A manifest gets the API's defaults, as YAML and as JSON.
func TestDefaults(t *testing.T) {
	for _, text := range []string{
		head,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"name":"c","image":"web:v1"}]}}`,
		`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"name":"c","image":"web:v1"}]}}]}`,
	} {
		pods, err := Pods([]byte(text), keep)
		if err != nil || len(pods) != 1 {
			t.Fatalf("%s: %d pods, %v", text, len(pods), err)
		}
		p := pods[0]
		if p.Name != "web" || p.Spec.RestartPolicy != v1.RestartPolicyAlways || p.Spec.Containers[0].ImagePullPolicy != v1.PullIfNotPresent ||
			p.Status.Phase != v1.PodPending || p.Spec.TerminationGracePeriodSeconds == nil {
			t.Errorf("%s: %+v", text, p)
		}
	}
}

// What the API refuses is refused, and what a pod cannot have before the API can be reached.
func TestRefused(t *testing.T) {
	spec := func(lines string) string { return head + lines }
	for text, want := range map[string]string{
		"":        "",
		"kind: [": "yaml",
		"hello":   "",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\n":                                           "a Service is not a pod",
		strings.Replace(head, "name: web, ", "", 1):                                                      "name is needed",
		strings.Replace(head, "name: c, ", "", 1):                                                        "spec.containers[0].name",
		spec("  restartPolicy: Sometimes\n"):                                                             "restartPolicy",
		spec("  serviceAccountName: a\n"):                                                                "static pods may not reference serviceaccounts",
		spec("  imagePullSecrets: [{name: a}]\n"):                                                        "static pods may not reference secrets",
		strings.Replace(head, "image: web:v1", "image: web:v1, envFrom: [{configMapRef: {name: a}}]", 1): "static pods may not reference configmaps",
		spec("  volumes: [{name: v, secret: {secretName: a}}]\n"):                                        "static pods may not reference secrets",
		spec("  volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]\n"):                          "static pods may not reference persistentvolumeclaims",
		spec("  volumes: [{name: v, csi: {driver: a.b}}]\n"):                                             "static pods may not reference csidrivers (via CSI volumes)",
		spec("  volumes: [{name: v, projected: {sources: [{configMap: {name: a}}]}}]\n"):                 "static pods may not reference configmaps",
		spec("  resourceClaims: [{name: r, resourceClaimName: a}]\n"):                                    "static pods may not reference resourceclaims",
	} {
		if _, err := Pods([]byte(text), keep); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", text, err, want)
		}
	}
	if _, err := Pods([]byte(spec("  volumes: [{name: v, projected: {sources: [{downwardAPI: {items: []}}]}}, {name: h, hostPath: {path: /tmp}}]\n")), keep); err != nil {
		t.Error(err)
	}
}

func FuzzPods(f *testing.F) {
	f.Add([]byte(head))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = Pods(text, keep) })
}
