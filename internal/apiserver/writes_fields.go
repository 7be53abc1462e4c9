// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/lru"
)

// knownObjects is how many objects createdFields remembers.
const knownObjects = 64

// createdFields finds the managed fields of objects that are created. They follow from the object and its manager, so
// that those of equal objects are found once: the pods of a ReplicaSet are equal until the server names them, and bindings and
// events differ only in values that no field is named after.
type createdFields struct {
	manager *managedfields.FieldManager
	// known are managed fields by createdBy.
	known *lru.Cache
}

// createdBy is an object, encoded, and the manager of its fields.
type createdBy struct{ object, manager string }

func newCreatedFields(manager *managedfields.FieldManager) createdFields {
	return createdFields{manager, lru.New(knownObjects)}
}

// set sets the managed fields of an object, and returns it. live is an empty object of its type.
func (f createdFields) set(live, object runtime.Object, manager string) runtime.Object {
	key, ok := keyOf(object, manager)
	if !ok {
		return f.manager.UpdateNoErrors(live, object, manager)
	}
	if known, ok := f.known.Get(key); ok {
		now := metav1.Now() // managedfields takes no clock either
		object.(metav1.Object).SetManagedFields(copied(known.([]metav1.ManagedFieldsEntry), &now))
		return object
	}
	object = f.manager.UpdateNoErrors(live, object, manager)
	if fields := object.(metav1.Object).GetManagedFields(); len(fields) > 0 {
		f.known.Add(key, copied(fields, nil))
	}
	return object
}

// keyOf returns under what the managed fields of an object are remembered, if they follow from it.
func keyOf(object runtime.Object, manager string) (createdBy, bool) {
	accessor, ok := object.(metav1.Object)
	encodes, encodable := withoutValues(object).(interface{ Marshal() ([]byte, error) })
	if !ok || !encodable || len(accessor.GetManagedFields()) > 0 {
		return createdBy{}, false
	}
	encoded, err := encodes.Marshal()
	return createdBy{string(encoded), manager}, err == nil
}

// withoutValues returns an object with the same managed fields. In a binding or an event, it has the same value for all values that
// differ from one to the next.
func withoutValues(object runtime.Object) runtime.Object {
	switch o := object.(type) {
	case *corev1.Binding:
		same := *o
		conceal(&same.Name, &same.Target.Name)
		same.UID = "" // no managed field, as the name
		return &same
	case *corev1.Event:
		same := *o
		regarding := &same.InvolvedObject
		conceal(&same.Name, &same.Message, &regarding.Name, &regarding.Namespace, (*string)(&regarding.UID), &regarding.ResourceVersion)
		if !same.EventTime.IsZero() {
			same.EventTime = metav1.NewMicroTime(time.Unix(1, 0))
		}
		return &same
	}
	return object
}

// renew sets the managed fields of a Lease that is only renewed, by the manager of all of its fields, and reports whether that is so. The
// fields stay what they are, and get a new time.
func renew(live, object runtime.Object, manager string) bool {
	before, ok := live.(*coordinationv1.Lease)
	after, ok2 := object.(*coordinationv1.Lease)
	if !ok || !ok2 || !managesRenewTime(before.ManagedFields, manager) || !isRenewal(before, after) {
		return false
	}
	now := metav1.Now() // managedfields takes no clock either
	after.ManagedFields = copied(before.ManagedFields, &now)
	return true
}

// managesRenewTime reports whether one manager has written all fields of a Lease, by updates.
func managesRenewTime(fields []metav1.ManagedFieldsEntry, manager string) bool {
	return len(fields) == 1 && fields[0].Manager == manager && fields[0].Operation == metav1.ManagedFieldsOperationUpdate &&
		fields[0].APIVersion == coordinationv1.SchemeGroupVersion.String() && fields[0].Subresource == "" &&
		fields[0].FieldsV1 != nil && bytes.Contains(fields[0].FieldsV1.Raw, []byte(`"f:renewTime":`))
}

// isRenewal reports whether a Lease differs from what it was by the time of its renewal, and in nothing else.
func isRenewal(before, after *coordinationv1.Lease) bool {
	was, is := before.Spec.RenewTime, after.Spec.RenewTime
	if was == nil || is == nil || was.Time.Equal(is.Truncate(time.Microsecond)) {
		return false
	}
	same := *after
	same.TypeMeta = before.TypeMeta
	same.Spec.RenewTime = was
	if same.ManagedFields == nil {
		same.ManagedFields = before.ManagedFields // as an update without them leaves them
	}
	one, err := same.Marshal()
	other, err2 := before.Marshal()
	return err == nil && err2 == nil && bytes.Equal(one, other) // cheaper than a comparison by reflection
}

// conceal gives all values that are set the same value.
func conceal(values ...*string) {
	for _, value := range values {
		if *value != "" {
			*value = "x"
		}
	}
}

func copied(fields []metav1.ManagedFieldsEntry, at *metav1.Time) []metav1.ManagedFieldsEntry {
	copies := make([]metav1.ManagedFieldsEntry, len(fields))
	for i := range fields {
		fields[i].DeepCopyInto(&copies[i])
		copies[i].Time = at
	}
	return copies
}
