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

// missing returns the path of the first value that was sent and is not stored, or "". It ignores
// what the server adds, such as defaults and changes of admission, and empty fields that are not
// stored.
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

// missingItem is missing for lists. The items must be stored in the same order, possibly with
// others between them, because admission adds items to lists too (volumes, tolerations).
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

// sameScalar reports whether two scalars are the same in JSON: decoders differ in whether they
// decode 1 as an integer or a float.
func sameScalar(a, b any) bool {
	textA, errA := json.Marshal(a)
	textB, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(textA) == string(textB)
}

// lacks returns the path of the first difference between an object as sent and as stored, or "".
// Owners must be equal as sets, because an additional owner changes when the object is deleted.
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
		if stored.GetAnnotations()[key] != value && !isControllerState(key) {
			return "metadata.annotations." + key
		}
	}
	if !slices.Equal(ownersOf(sent), ownersOf(stored)) {
		return "metadata.ownerReferences"
	}
	return ""
}

// isControllerState reports whether an annotation is in a domain of Kubernetes. Controllers keep
// state in these, for example the desired replicas and the revision of a ReplicaSet.
func isControllerState(annotation string) bool {
	domain, _, qualified := strings.Cut(annotation, "/")
	return qualified && (domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"))
}

// ownersOf returns an object's owners in a comparable form.
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
