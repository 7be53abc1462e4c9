// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// missing is the path of the first thing that was sent and is not stored, or "". What a
// server adds to it (defaults, what admission injects) does not count, and neither
// does a field that was sent empty and is not there.
func missing(sent, stored any, path string) string {
	switch want := sent.(type) {
	case nil:
		return ""
	case map[string]any:
		have, ok := stored.(map[string]any)
		if !ok && len(want) > 0 {
			return path
		}
		keys := make([]string, 0, len(want))
		for key := range want {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			if at := missing(want[key], have[key], path+"."+key); at != "" {
				return at
			}
		}
		return ""
	case []any:
		have, ok := stored.([]any)
		if !ok && len(want) == 0 {
			return ""
		}
		return missingItem(want, have, path)
	default:
		if stored == nil && isEmpty(sent) || sameScalar(sent, stored) {
			return ""
		}
		return path
	}
}

// missingItem: the items have to be there in their order, with others between them, for
// admission adds to lists too (volumes, tolerations).
func missingItem(want, have []any, path string) string {
	next := 0
	for i := range want {
		at := fmt.Sprintf("%s[%d]", path, i)
		for ; next < len(have) && missing(want[i], have[next], at) != ""; next++ {
		}
		if next == len(have) {
			return at
		}
		next++
	}
	return ""
}

func isEmpty(scalar any) bool {
	text, err := json.Marshal(scalar)
	return err == nil && slices.Contains([]string{"\"\"", "0", "false"}, string(text))
}

// sameScalar: 1 is read as an integer by one decoder and as a float by the other.
func sameScalar(a, b any) bool {
	textA, errA := json.Marshal(a)
	textB, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(textA) == string(textB)
}

// lacks is what an object of the target lacks of what was sent, or "". Owners are compared
// as a set, because one too many keeps alive or kills as well.
func lacks(sent, stored *unstructured.Unstructured) string {
	for key, value := range sent.Object {
		if key == "metadata" || key == "status" {
			continue
		}
		if at := missing(value, stored.Object[key], key); at != "" {
			return at
		}
	}
	for key, value := range sent.GetLabels() {
		if stored.GetLabels()[key] != value {
			return "metadata.labels." + key
		}
	}
	for key, value := range sent.GetAnnotations() {
		if stored.GetAnnotations()[key] != value && !byControllers(key) {
			return "metadata.annotations." + key
		}
	}
	if !slices.Equal(ownersOf(sent), ownersOf(stored)) {
		return "metadata.ownerReferences"
	}
	return ""
}

// byControllers reports whether an annotation is Kubernetes' own, in which controllers keep what
// they know: how many replicas a ReplicaSet's Deployment wants, which revision it is.
func byControllers(annotation string) bool {
	domain, _, qualified := strings.Cut(annotation, "/")
	return qualified && (domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"))
}

// ownersOf are an object's owners in a form that can be compared.
func ownersOf(object *unstructured.Unstructured) []string {
	var owners []string
	for _, ref := range object.GetOwnerReferences() {
		group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
		controller := ref.Controller != nil && *ref.Controller
		owners = append(owners, strings.Join([]string{string(ref.UID), group, ref.Kind, ref.Name, fmt.Sprint(controller)}, " "))
	}
	slices.Sort(owners)
	return owners
}

func ownerUIDs(object *unstructured.Unstructured) []types.UID {
	var uids []types.UID
	for _, ref := range object.GetOwnerReferences() {
		uids = append(uids, ref.UID)
	}
	return uids
}
