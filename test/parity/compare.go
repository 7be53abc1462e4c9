// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// aspect is a part of a response that is compared.
type aspect string

const (
	aspectCode     aspect = "code"
	aspectReason   aspect = "reason"
	aspectCauses   aspect = "causes"
	aspectObject   aspect = "object"
	aspectMessages aspect = "messages"
	aspectWarnings aspect = "warnings"
	aspectTable    aspect = "table"
	// aspectDiscovery compares the discovery of a kind rather than responses.
	aspectDiscovery aspect = "discovery"
)

// required are the aspects that agreement requires; the others are only counted.
var required = []aspect{aspectCode, aspectReason, aspectCauses, aspectObject}

// difference is a difference between two responses in one aspect.
type difference struct {
	Aspect aspect `json:"aspect"`
	// Field is the field of the object or of the cause.
	Field    string `json:"field,omitempty"`
	Upstream string `json:"upstream"`
	Kindred  string `json:"kindred"`
}

// compare returns the differences between two responses. If the codes differ, nothing else is
// compared, because all else follows from that.
func compare(o outcome) []difference {
	if o.Upstream.Code != o.Kindred.Code {
		return codeDifferences(o)
	}
	if o.codeOnly {
		return nil
	}
	up := mask{sent: string(o.Both.Body), generated: generatedFrom(o.Both.Body)}
	kin := mask{sent: string(o.Both.Body), generated: up.generated, names: o.names}
	var all []difference
	if o.Upstream.Status != nil && o.Kindred.Status != nil {
		all = compareStatus(o.Upstream.Status, o.Kindred.Status, up, kin)
	} else {
		all = compareObjects(o, up, kin)
	}
	return append(all, compareLists(aspectWarnings, "", maskAll(up, o.Upstream.Warnings), maskAll(kin, o.Kindred.Warnings))...)
}

// generatedFrom returns the generateName of a body.
func generatedFrom(body []byte) string {
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(body, &object) != nil || object.Name != "" {
		return ""
	}
	return object.GenerateName
}

// codeDifferences describes a request that only one server refuses. If it is upstream, each of its
// causes is a difference, because each is a missing rule.
func codeDifferences(o outcome) []difference {
	kindred := verdict(o.Kindred)
	if o.Upstream.Status == nil || o.Upstream.Status.Details == nil || len(o.Upstream.Status.Details.Causes) == 0 {
		d := difference{Aspect: aspectCode, Upstream: verdict(o.Upstream), Kindred: kindred}
		if causes := causesOf(o.Kindred.Status); len(causes) > 0 {
			d.Field = causes[0].Field
			d.Kindred = fmt.Sprintf("%d %s: %s", o.Kindred.Code, causes[0].Type, causes[0].Message)
		}
		return []difference{d}
	}
	var all []difference
	for _, c := range causesOf(o.Upstream.Status) {
		all = append(all, difference{aspectCode, c.Field, fmt.Sprintf("%d %s: %s", o.Upstream.Code, c.Type, c.Message), kindred})
	}
	return all
}

// verdict returns a response in one line.
func verdict(a *answer) string {
	switch {
	case a.Status != nil:
		return fmt.Sprintf("%d %s: %s", a.Code, a.Status.Reason, a.Status.Message)
	case a.Object != nil:
		return fmt.Sprintf("%d with the object", a.Code)
	}
	return fmt.Sprintf("%d %s", a.Code, clip(string(a.raw), 200))
}

func causesOf(s *metav1.Status) []metav1.StatusCause {
	if s == nil || s.Details == nil {
		return nil
	}
	return s.Details.Causes
}

func compareStatus(upstream, kindred *metav1.Status, up, kin mask) []difference {
	var all []difference
	if upstream.Reason != kindred.Reason {
		all = append(all, difference{aspectReason, "", string(upstream.Reason) + ": " + upstream.Message, string(kindred.Reason) + ": " + kindred.Message})
	}
	ofFields := func(causes []metav1.StatusCause, m mask) (fields, messages []string) {
		for _, c := range causes {
			fields = append(fields, m.text(c.Field+" "+string(c.Type)))
			messages = append(messages, m.text(c.Field+" "+c.Message))
		}
		return fields, messages
	}
	upFields, upMessages := ofFields(causesOf(upstream), up)
	kinFields, kinMessages := ofFields(causesOf(kindred), kin)
	missing := compareLists(aspectCauses, "", unique(upFields), unique(kinFields))
	all = append(all, withText(missing, upMessages, kinMessages)...)
	if len(missing) > 0 {
		return all
	}
	messages := compareLists(aspectMessages, "", upMessages, kinMessages)
	if len(messages) == 0 && up.text(upstream.Message) != kin.text(kindred.Message) {
		messages = []difference{{aspectMessages, "", up.text(upstream.Message), kin.text(kindred.Message)}}
	}
	return append(all, messages...)
}

// withText adds a cause's message to its field and type.
func withText(differences []difference, upstream, kindred []string) []difference {
	text := func(cause string, messages []string) string {
		field, kind, found := strings.Cut(cause, " ")
		if !found {
			return cause
		}
		for _, m := range messages {
			if message, found := strings.CutPrefix(m, field+" "); found {
				return kind + ": " + message
			}
		}
		return kind
	}
	for i, d := range differences {
		cause := d.Upstream + d.Kindred
		differences[i].Field, _, _ = strings.Cut(cause, " ")
		if d.Upstream != "" {
			differences[i].Upstream, differences[i].Kindred = text(d.Upstream, upstream), "nothing"
		} else {
			differences[i].Upstream, differences[i].Kindred = "nothing", text(d.Kindred, kindred)
		}
	}
	return differences
}

// compareLists compares lists without regard to order. Items in only one of them are differences;
// two such items at the same position count as one difference.
func compareLists(a aspect, field string, upstream, kindred []string) []difference {
	missing, extra := without(upstream, kindred), without(kindred, upstream)
	slices.Sort(missing)
	slices.Sort(extra)
	var all []difference
	if a == aspectCauses {
		for _, m := range missing {
			all = append(all, difference{a, field, m, ""})
		}
		for _, e := range extra {
			all = append(all, difference{a, field, "", e})
		}
		return all
	}
	for i := range max(len(missing), len(extra)) {
		d := difference{a, field, "nothing", "nothing"}
		if i < len(missing) {
			d.Upstream = missing[i]
		}
		if i < len(extra) {
			d.Kindred = extra[i]
		}
		all = append(all, d)
	}
	return all
}

// without returns list without the items of other, each as often as it is in other.
func without(list, other []string) []string {
	left := map[string]int{}
	for _, s := range other {
		left[s]++
	}
	var rest []string
	for _, s := range list {
		if left[s] > 0 {
			left[s]--
			continue
		}
		rest = append(rest, s)
	}
	return rest
}

func unique(list []string) []string { return slices.Compact(sorted(list)) }

func maskAll(m mask, list []string) []string {
	masked := make([]string, len(list))
	for i, s := range list {
		masked[i] = m.text(s)
	}
	return masked
}

// compareObjects compares bodies that are not errors.
func compareObjects(o outcome, up, kin mask) []difference {
	kind := o.aspect
	if kind == "" {
		kind = aspectObject
	}
	if o.Upstream.Object == nil || o.Kindred.Object == nil {
		if string(o.Upstream.raw) == string(o.Kindred.raw) {
			return nil
		}
		return []difference{{kind, "", clip(string(o.Upstream.raw), 300), clip(string(o.Kindred.raw), 300)}}
	}
	upstream, kindred := runtime.DeepCopyJSON(o.Upstream.Object), runtime.DeepCopyJSON(o.Kindred.Object)
	nameManagers(upstream)
	nameManagers(kindred)
	maskedUp, maskedKin := up.value(upstream), kin.value(kindred)
	if kind == aspectTable {
		withoutAges(maskedUp)
		withoutAges(maskedKin)
	}
	return diff(kind, nil, maskedUp, maskedKin)
}

// withoutAges removes ages from a table, and the object of each row.
func withoutAges(table any) {
	found, _ := lookup(table, path{"rows"})
	rows, _ := found.([]any)
	for _, row := range rows {
		row, _ := row.(map[string]any)
		delete(row, "object")
		cells, _ := row["cells"].([]any)
		for i, cell := range cells {
			if text, ok := cell.(string); ok {
				cells[i] = ages.ReplaceAllString(text, "<age>")
			}
		}
	}
}

// ages matches ages in tables: "3s", "2m5s", "5d", and "3 (5s ago)" in the middle.
var ages = regexp.MustCompile(`\b(\d+[smhdy]){1,2}\b`)

// nameManagers replaces the list of managed fields, whose order depends on times in whole seconds,
// by an object with the managers' names as keys.
func nameManagers(object map[string]any) {
	metadata, _ := object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	if len(entries) == 0 {
		return
	}
	named := map[string]any{}
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		delete(entry, "time")
		name := fmt.Sprint(entry["manager"], " ", entry["operation"])
		if subresource, found := entry["subresource"]; found {
			name += fmt.Sprint(" ", subresource)
		}
		named[name] = entry
	}
	metadata["managedFields"] = named
}

// diff returns the paths at which two JSON values differ.
func diff(a aspect, at path, upstream, kindred any) []difference {
	if reflect.DeepEqual(upstream, kindred) {
		return nil
	}
	var all []difference
	switch up := upstream.(type) {
	case map[string]any:
		if kin, ok := kindred.(map[string]any); ok {
			for _, key := range unique(append(sortedKeys(up), sortedKeys(kin)...)) {
				all = append(all, diffKey(a, at.to(key), key, up, kin)...)
			}
			return all
		}
	case []any:
		if kin, ok := kindred.([]any); ok && len(kin) == len(up) {
			for i := range up {
				all = append(all, diff(a, at.to(i), up[i], kin[i])...)
			}
			return all
		}
	}
	return []difference{{a, at.String(), short(upstream), short(kindred)}}
}

func diffKey(a aspect, at path, key string, upstream, kindred map[string]any) []difference {
	up, inUpstream := upstream[key]
	kin, inKindred := kindred[key]
	switch {
	case !inUpstream:
		return []difference{{a, at.String(), "nothing", short(kin)}}
	case !inKindred:
		return []difference{{a, at.String(), short(up), "nothing"}}
	}
	return diff(a, at, up, kin)
}

// short returns a JSON value on one line of limited length.
func short(value any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return clip(strings.TrimSuffix(b.String(), "\n"), 160)
}

// clip truncates a text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + fmt.Sprintf("… (%d bytes)", len(s))
}
