// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events serves the Events of the core group in their newer form, as
// events.k8s.io/v1. Both forms are one stored object.
package events

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is events.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     eventsv1.GroupName,
		Priority: 17750,
		Scheme:   []func(*runtime.Scheme) error{eventsv1.AddToScheme, addConversions},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{event{core.Event}}}},
	}
}

// event is the kind of the core group with the field names of this one.
type event struct {
	generic.Kind[*corev1.Event]
}

// renamed maps selectable fields to their names in this group.
var renamed = map[string]string{
	"regarding.kind":            "involvedObject.kind",
	"regarding.namespace":       "involvedObject.namespace",
	"regarding.name":            "involvedObject.name",
	"regarding.uid":             "involvedObject.uid",
	"regarding.apiVersion":      "involvedObject.apiVersion",
	"regarding.resourceVersion": "involvedObject.resourceVersion",
	"regarding.fieldPath":       "involvedObject.fieldPath",
	"reportingController":       "reportingComponent",
}

// Register registers the core type as the internal type of this group too.
func (e event) Register(scheme *runtime.Scheme, gv schema.GroupVersion) error {
	if err := e.Kind.Register(scheme, gv); err != nil {
		return err
	}
	return scheme.AddFieldLabelConversionFunc(gv.WithKind(e.Name), func(label, value string) (string, string, error) {
		return e.fieldLabel(label, value)
	})
}

// fieldLabel accepts only this group's names of fields.
func (e event) fieldLabel(label, value string) (string, string, error) {
	name, isNew := renamed[label]
	switch {
	case isNew:
		label = name
	case label == "source" || slices.Contains(slices.Collect(maps.Values(renamed)), label):
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	return e.FieldLabel(label, value)
}

func addConversions(scheme *runtime.Scheme) error {
	if err := scheme.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(from, to any, _ conversion.Scope) error {
		toCore(from.(*eventsv1.Event), to.(*corev1.Event))
		return nil
	}); err != nil {
		return err
	}
	if err := scheme.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(from, to any, _ conversion.Scope) error {
		fromCore(from.(*corev1.Event), to.(*eventsv1.Event))
		return nil
	}); err != nil {
		return err
	}
	if err := scheme.AddConversionFunc((*eventsv1.EventList)(nil), (*corev1.EventList)(nil), func(from, to any, _ conversion.Scope) error {
		in, out := from.(*eventsv1.EventList), to.(*corev1.EventList)
		out.ListMeta, out.Items = in.ListMeta, make([]corev1.Event, len(in.Items))
		for i := range in.Items {
			toCore(&in.Items[i], &out.Items[i])
		}
		return nil
	}); err != nil {
		return err
	}
	return scheme.AddConversionFunc((*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(from, to any, _ conversion.Scope) error {
		in, out := from.(*corev1.EventList), to.(*eventsv1.EventList)
		out.ListMeta, out.Items = in.ListMeta, make([]eventsv1.Event, len(in.Items))
		for i := range in.Items {
			fromCore(&in.Items[i], &out.Items[i])
		}
		return nil
	})
}

func toCore(in *eventsv1.Event, out *corev1.Event) {
	out.ObjectMeta = in.ObjectMeta
	out.EventTime = in.EventTime
	out.ReportingController = in.ReportingController
	out.ReportingInstance = in.ReportingInstance
	out.Action = in.Action
	out.Reason = in.Reason
	out.InvolvedObject = in.Regarding
	out.Related = in.Related
	out.Message = in.Note
	out.Type = in.Type
	out.Source = in.DeprecatedSource
	out.FirstTimestamp = in.DeprecatedFirstTimestamp
	out.LastTimestamp = in.DeprecatedLastTimestamp
	out.Count = in.DeprecatedCount
	out.Series = nil
	if in.Series != nil {
		out.Series = &corev1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}

func fromCore(in *corev1.Event, out *eventsv1.Event) {
	out.ObjectMeta = in.ObjectMeta
	out.EventTime = in.EventTime
	out.ReportingController = in.ReportingController
	out.ReportingInstance = in.ReportingInstance
	out.Action = in.Action
	out.Reason = in.Reason
	out.Regarding = in.InvolvedObject
	out.Related = in.Related
	out.Note = in.Message
	out.Type = in.Type
	out.DeprecatedSource = in.Source
	out.DeprecatedFirstTimestamp = in.FirstTimestamp
	out.DeprecatedLastTimestamp = in.LastTimestamp
	out.DeprecatedCount = in.Count
	out.Series = nil
	if in.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}
