// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

func TestNesting(t *testing.T) {
	for body, want := range map[string]int{
		``:                              0,
		`7`:                             0,
		`{}`:                            1,
		`{"a":[{}],"b":{}}`:             3,
		`{"a":"[[[[\"{{{{","b\\":"["}`:  1,
		`[[[`:                           3,
		`}}}{`:                          0,
		strings.Repeat(`{"a":`, 10_000): 10_000,
	} {
		if got := nesting([]byte(body)); got != want {
			t.Errorf("%.40q is %d levels deep, want %d", body, got, want)
		}
	}
}

func TestLimitNesting(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	const limit = 3 << 20
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	long := `{"data":{"x":"` + strings.Repeat("x", limit) + `"}}`
	for _, tt := range []struct {
		name, method, contentType, body string
		refused                         bool
	}{
		{"deep merge patch", "PATCH", "application/merge-patch+json", deep, true},
		{"deep merge patch with a parameter", "PATCH", "application/merge-patch+json; charset=utf-8", deep, true},
		{"deep strategic patch", "PATCH", "application/strategic-merge-patch+json", deep, true},
		{"deep JSON patch", "PATCH", "application/json-patch+json", `[{"op":"add","path":"/x","value":` + deep + `}]`, true},
		{"common patch", "PATCH", "application/merge-patch+json", `{"data":{"a":"b"}}`, false},
		{"large patch", "PATCH", "application/merge-patch+json", long[:limit], false},
		{"too large, which others refuse", "PATCH", "application/merge-patch+json", long, false},
		{"apply", "PATCH", "application/apply-patch+yaml", deep, false},
		{"create", "POST", "application/json", deep, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var passed string
			next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				passed = string(body)
			})
			request := httptest.NewRequest(tt.method, "/api/v1/namespaces/n/configmaps/c", strings.NewReader(tt.body))
			request.Header.Set("Content-Type", tt.contentType)
			answer := httptest.NewRecorder()
			limitNesting(next, limit, serializer.NewCodecFactory(scheme)).ServeHTTP(answer, request)
			if !tt.refused {
				if passed != tt.body {
					t.Errorf("%d of %d bytes passed", len(passed), len(tt.body))
				}
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
				t.Fatalf("%v: %s", err, answer.Body)
			}
			if answer.Code != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest || !strings.Contains(status.Message, "levels deep") || passed != "" {
				t.Errorf("answer %d: %+v", answer.Code, status)
			}
		})
	}
}
