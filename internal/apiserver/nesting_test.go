// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestNestingOfJSON(t *testing.T) {
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
		if got := nestingOfJSON([]byte(body)); got != want {
			t.Errorf("%.40q is %d levels deep, want %d", body, got, want)
		}
	}
}

func TestNestingOfYAML(t *testing.T) {
	for body, want := range map[string]int{
		"":                                 0,
		"a: b":                             1,
		"a:\n- b: {c: d}":                  4,
		"# { \" {\na: {b: '{{{'}":          2,
		`{"a":{"b":[]}}`:                   3,
		strings.Repeat("- ", 500) + "x":    500,
		strings.Repeat("? ", 20_000) + "x": 0, // refused by the decoder
		"a: [":                             0,
		strings.Repeat("[", 5000) + "x":    0,
		"a: &a [x]\nb: [*a, [*a]]":         4,
		strings.Repeat(`{"a":`, 20_000):    0,
		strings.Repeat("{a: ", 2000) + "x" + strings.Repeat("}", 2000): 2000,
	} {
		if got := nestingOfYAML([]byte(body)); got != want {
			t.Errorf("%.40q is %d levels deep, want %d", body, got, want)
		}
	}
}

// message returns a protobuf message nested the given number of levels deep.
func message(levels int) []byte {
	m := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x")
	for range levels - 1 {
		m = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), m)
	}
	return m
}

func TestNestingOfProtobuf(t *testing.T) {
	group := protowire.AppendTag(protowire.AppendTag(nil, 3, protowire.StartGroupType), 3, protowire.EndGroupType)
	number := protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1<<40)
	for _, tt := range []struct {
		name string
		body []byte
		want int
	}{
		{"nothing", nil, 0},
		{"no envelope", message(5), 0},
		{"flat", append([]byte("k8s\x00"), message(1)...), 1},
		{"deep", append([]byte("k8s\x00"), message(500)...), 500},
		{"deeper than counted", append([]byte("k8s\x00"), message(20_000)...), maxNesting + 1},
		{"after other fields", slices.Concat([]byte("k8s\x00"), group, number, message(700)), 700},
		{"before garbage", slices.Concat([]byte("k8s\x00"), message(700), []byte{0xff}), 700},
		{"text", append([]byte("k8s\x00"), strings.Repeat("\n\n", 100_000)...), 1},
	} {
		if got := nestingOfProtobuf(tt.body); got != tt.want {
			t.Errorf("%s: %d levels deep, want %d", tt.name, got, tt.want)
		}
	}
}

// FuzzNesting: the depth of any body is computed quickly and without a panic.
func FuzzNesting(f *testing.F) {
	f.Add([]byte(`{"a":["\"[",{}]}`))
	f.Add([]byte("a:\n- b: {c: d} # x\n"))
	f.Add(append([]byte("k8s\x00"), message(30)...))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, contentType := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
			if depth := depthOf(contentType)(body); depth < 0 || depth > len(body) {
				t.Errorf("%s of %d bytes is %d levels deep", contentType, len(body), depth)
			}
		}
		var value any
		if json.Unmarshal(body, &value) == nil && nestingOfJSON(body) != depthOfValue(value) {
			t.Errorf("%q is %d levels deep, counted %d", body, depthOfValue(value), nestingOfJSON(body))
		}
	})
}

// depthOfValue is the model: it computes the depth of a decoded value.
func depthOfValue(value any) (deepest int) {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			deepest = max(deepest, depthOfValue(field))
		}
		return deepest + 1
	case []any:
		for _, item := range v {
			deepest = max(deepest, depthOfValue(item))
		}
		return deepest + 1
	}
	return 0
}

func TestLimitNesting(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	const limit = 3 << 20
	nested := func(levels int) string { return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) }
	deep, allowed := nested(maxNesting+1), nested(maxNesting)
	long := `{"data":{"x":"` + strings.Repeat("x", limit) + `"}}`
	costly := `{"x":"` + strings.Repeat("x", 1<<20) + `","y":` + nested(200) + "}"
	for _, tt := range []struct {
		name, method, contentType, body string
		refused                         bool
	}{
		{"merge patch", "PATCH", "application/merge-patch+json", deep, true},
		{"merge patch with a parameter", "PATCH", "application/merge-patch+json; charset=utf-8", deep, true},
		{"strategic patch", "PATCH", "application/strategic-merge-patch+json", deep, true},
		{"JSON patch", "PATCH", "application/json-patch+json", `[{"op":"add","path":"/x","value":` + deep + `}]`, true},
		{"apply", "PATCH", "application/apply-patch+yaml", deep, true},
		{"apply YAML", "PATCH", "application/apply-patch+yaml", strings.Repeat("- ", maxNesting+1) + "x", true},
		{"large and nested patch", "PATCH", "application/merge-patch+json", costly, true},
		{"large and nested object", "POST", "application/json", costly, false},
		{"common patch", "PATCH", "application/merge-patch+json", `{"data":{"a":"b"}}`, false},
		{"large patch", "PATCH", "application/merge-patch+json", long[:limit], false},
		{"too large, refused elsewhere", "PATCH", "application/merge-patch+json", long, false},
		{"create", "POST", "application/json", deep, true},
		{"create without content type", "POST", "", deep, true},
		{"create YAML", "POST", "application/yaml", deep, true},
		{"create protobuf", "POST", "application/vnd.kubernetes.protobuf", "k8s\x00" + string(message(maxNesting+1)), true},
		{"update", "PUT", "application/json", deep, true},
		{"delete options", "DELETE", "application/json", deep, true},
		{"at the limit", "POST", "application/json", allowed, false},
		{"at the limit, YAML", "POST", "application/yaml", allowed, false},
		{"plain text", "POST", "text/plain", deep, false},
		{"a stream", "POST", "stream", deep, false},
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
			request = request.WithContext(apirequest.WithRequestInfo(request.Context(), &apirequest.RequestInfo{}))
			streams := func(*http.Request, *apirequest.RequestInfo) bool { return tt.name == "a stream" }
			if tt.name == "a stream" {
				request.Header.Set("Content-Type", "application/json")
			}
			answer := httptest.NewRecorder()
			limitNesting(next, limit, streams, serializer.NewCodecFactory(scheme)).ServeHTTP(answer, request)
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
