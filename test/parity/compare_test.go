// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// invalid returns a Status 422 with causes, each "field type message".
func invalid(causes ...string) string {
	var list []string
	for _, c := range causes {
		parts := strings.SplitN(c, " ", 3)
		list = append(list, `{"field":"`+parts[0]+`","reason":"`+parts[1]+`","message":"`+parts[2]+`"}`)
	}
	return `{"kind":"Status","apiVersion":"v1","code":422,"reason":"Invalid","message":"invalid","details":{"causes":[` + strings.Join(list, ",") + `]}}`
}

func TestCompare(t *testing.T) {
	const (
		up  = `{"kind":"A","metadata":{"name":"a","uid":"11111111-2222-3333-4444-555555555555","resourceVersion":"7","creationTimestamp":"2025-01-02T03:04:05Z","managedFields":[{"manager":"m","operation":"Update","time":"2025-01-02T03:04:05Z","fieldsV1":{"f:a":{}}}]},"spec":{"ip":"10.96.1.2","list":[1,2]}}`
		kin = `{"kind":"A","metadata":{"name":"a","uid":"99999999-2222-3333-4444-555555555555","resourceVersion":"90","creationTimestamp":"2026-01-02T03:04:05Z","managedFields":[{"manager":"m","operation":"Update","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:a":{}}}]},"spec":{"ip":"10.96.3.4","list":[1,2]}}`
	)
	for _, tt := range []struct {
		name              string
		sent              string
		code, kinCode     int
		upstream          string
		kindred           string
		warning, warning2 []string
		want              []difference
	}{
		{name: "equal except for generated values", code: 201, kinCode: 201, upstream: up, kindred: kin},
		{
			name: "values that the client sent are compared", sent: `{"spec":{"ip":"10.96.1.2"}}`, code: 201, kinCode: 201, upstream: up, kindred: kin,
			want: []difference{{aspectObject, "spec.ip", `"10.96.1.2"`, `"<service IP>"`}},
		},
		{
			name: "a default is missing", code: 201, kinCode: 201, upstream: `{"spec":{"a":1,"b":2}}`, kindred: `{"spec":{"a":1}}`,
			want: []difference{{aspectObject, "spec.b", "2", "nothing"}},
		},
		{
			name: "a rule is missing", code: 422, kinCode: 201, upstream: invalid("spec.a FieldValueInvalid bad"), kindred: `{}`,
			want: []difference{{aspectCode, "spec.a", "422 FieldValueInvalid: bad", "201 with the object"}},
		},
		{
			name: "an additional rule", code: 201, kinCode: 422, upstream: `{}`, kindred: invalid("spec.a FieldValueInvalid bad"),
			want: []difference{{aspectCode, "spec.a", "201 with the object", "422 FieldValueInvalid: bad"}},
		},
		{
			name: "a cause is missing", code: 422, kinCode: 422, upstream: invalid("spec.a FieldValueInvalid bad", "spec.b FieldValueRequired must"), kindred: invalid("spec.a FieldValueInvalid bad"),
			want: []difference{{aspectCauses, "spec.b", "FieldValueRequired: must", "nothing"}},
		},
		{
			name: "other words", code: 422, kinCode: 422, upstream: invalid("spec.a FieldValueInvalid bad"), kindred: invalid("spec.a FieldValueInvalid wrong"),
			want: []difference{{aspectMessages, "", "spec.a bad", "spec.a wrong"}},
		},
		{
			name: "the order of causes means nothing", code: 422, kinCode: 422,
			upstream: invalid("spec.a FieldValueInvalid bad", "spec.b FieldValueInvalid bad"), kindred: invalid("spec.b FieldValueInvalid bad", "spec.a FieldValueInvalid bad"),
		},
		{
			name: "a warning is missing", code: 201, kinCode: 201, upstream: `{}`, kindred: `{}`, warning: []string{`299 - "old"`},
			want: []difference{{aspectWarnings, "", "old", "nothing"}},
		},
		{
			name: "another reason", code: 409, kinCode: 409, upstream: `{"kind":"Status","apiVersion":"v1","reason":"Conflict","message":"a"}`, kindred: `{"kind":"Status","apiVersion":"v1","reason":"AlreadyExists","message":"a"}`,
			want: []difference{{aspectReason, "", "Conflict: a", "AlreadyExists: a"}},
		},
		{
			name: "managed fields in another order", code: 200, kinCode: 200,
			upstream: `{"metadata":{"managedFields":[{"manager":"a","operation":"Update"},{"manager":"b","operation":"Apply"}]}}`,
			kindred:  `{"metadata":{"managedFields":[{"manager":"b","operation":"Apply"},{"manager":"a","operation":"Update"}]}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := outcome{pair: pair{Both: request{Body: []byte(tt.sent)}}, Upstream: newAnswer(tt.code, tt.warning, []byte(tt.upstream)), Kindred: newAnswer(tt.kinCode, tt.warning2, []byte(tt.kindred))}
			if diff := cmp.Diff(tt.want, compare(o), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAliases: values that the servers have generated count as equal when clients send them back.
func TestAliases(t *testing.T) {
	names := aliases{}
	names.learn(
		object(t, `{"metadata":{"uid":"11111111-2222-3333-4444-555555555555","resourceVersion":"7"},"spec":{"clusterIP":"10.96.1.2","other":"x"}}`),
		object(t, `{"metadata":{"uid":"99999999-2222-3333-4444-555555555555","resourceVersion":"90"},"spec":{"clusterIP":"10.96.3.4","other":"y"}}`))
	want := aliases{"99999999-2222-3333-4444-555555555555": "11111111-2222-3333-4444-555555555555", "90": "7", "10.96.3.4": "10.96.1.2"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if got := names.replace("UID 99999999-2222-3333-4444-555555555555 of 901"); got != "UID 11111111-2222-3333-4444-555555555555 of 901" {
		t.Error(got)
	}
	if got := string(names.restore([]byte(`{"ip":"10.96.1.2","replicas":7}`))); got != `{"ip":"10.96.3.4","replicas":7}` {
		t.Error(got)
	}
}

func TestTableWithoutAges(t *testing.T) {
	table := object(t, `{"rows":[{"cells":["a",3,"3 (5m ago)","2d4h"],"object":{"x":1}}]}`)
	withoutAges(table)
	if diff := cmp.Diff(object(t, `{"rows":[{"cells":["a",3,"3 (<age> ago)","<age>"]}]}`), table); diff != "" {
		t.Error(diff)
	}
}

func TestWarningText(t *testing.T) {
	for header, want := range map[string]string{
		`299 - "spec.a: \"b\" is old"`: `spec.a: "b" is old`,
		`nonsense`:                     "nonsense",
	} {
		if got := warningText(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
}

func TestClassify(t *testing.T) {
	r := &resource{gv: schema.GroupVersion{Version: "v1"}, api: metav1.APIResource{Name: "pods"}}
	with := func(field, message string) outcome {
		return outcome{pair: pair{ID: "pods#1"}, Upstream: &answer{Code: http.StatusOK}, Kindred: &answer{Code: http.StatusOK},
			Differences: []difference{{aspectCauses, field, message, "nothing"}}}
	}
	classes := classify([]*trial{{resource: r, outcomes: []outcome{
		with("spec.b", "other"), with("spec.a[0].x", `Invalid value: "a": bad 1`), with("spec.a[7].x", `Invalid value: "b": bad 22`)}}})
	if len(classes) != 2 || classes[0].Field != "spec.a[].x" || classes[0].Count != 2 {
		t.Errorf("classes: %+v", classes)
	}
}

func TestScore(t *testing.T) {
	r := &resource{gv: schema.GroupVersion{Group: "batch", Version: "v1"}, api: metav1.APIResource{Name: "jobs"}}
	with := func(code int, aspects ...aspect) outcome {
		o := outcome{Upstream: &answer{Code: code}, Kindred: &answer{Code: code}}
		for _, a := range aspects {
			o.Differences = append(o.Differences, difference{Aspect: a})
		}
		return o
	}
	got := (&trial{resource: r, outcomes: []outcome{with(201), with(422, aspectMessages), with(422, aspectCauses, aspectCauses), with(201, aspectObject)}}).score()
	want := score{Kind: "jobs.batch", Requests: 4, Accepted: 2, Agreed: 2, Exact: 1, Differing: map[aspect]int{aspectMessages: 1, aspectCauses: 1, aspectObject: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.percent() != 50 {
		t.Errorf("%v %%, want 50", got.percent())
	}
}

func TestPrintMatching(t *testing.T) {
	body := []byte(`{"a":"it's"}`)
	o := outcome{pair: pair{ID: "pods#3", What: "create plain", Both: request{Method: http.MethodPost, Path: "/api/v1/pods?a=b", ContentType: contentJSON, Body: body}},
		Upstream: newAnswer(200, nil, []byte(`{}`)), Kindred: newAnswer(404, nil, []byte(`{}`)), Differences: []difference{{Aspect: aspectCode}}}
	var out strings.Builder
	printMatching(&out, []*trial{{outcomes: []outcome{o}}}, regexp.MustCompile("pods#3"), 1, true)
	if want := `curl -X POST "$SERVER"'/api/v1/pods?a=b' -H 'Content-Type: application/json' -d '{"a":"it'\''s"}'`; !strings.Contains(out.String(), want) {
		t.Errorf("no %s in:\n%s", want, out.String())
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		`422 FieldValueInvalid: Invalid value: "a\"b": must be at least 3`:   `422 FieldValueInvalid: Invalid value: "…": must be at least N`,
		`roleRef Invalid value: {"Kind":"A","x":[1,{"b":{}}]}: is immutable`: `roleRef Invalid value: …: is immutable`,
	} {
		if got := words(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
