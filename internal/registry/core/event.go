// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// eventTTL is the time that events are kept, in seconds: upstream's --event-ttl.
const eventTTL = 3600

// Event reports something that happened to an object. The same events are served in the group
// events.k8s.io, whose newer form has stricter rules.
var Event = generic.Kind[*corev1.Event]{
	Name: "Event", Plural: "events", ShortNames: []string{"ev"},
	New:            func() *corev1.Event { return &corev1.Event{} },
	NewList:        func() runtime.Object { return &corev1.EventList{} },
	Metadata:       generic.Metadata{Loose: func(ctx context.Context) bool { return !strictEvents(ctx) }},
	Validate:       validateEvent,
	ValidateUpdate: validateEventUpdate,
	CreateOnUpdate: true,
	Deletion:       generic.Deletion[*corev1.Event]{Unowned: true, TTL: eventTTL},
	Fields: map[string]func(*corev1.Event) string{
		"involvedObject.kind":            func(e *corev1.Event) string { return e.InvolvedObject.Kind },
		"involvedObject.namespace":       func(e *corev1.Event) string { return e.InvolvedObject.Namespace },
		"involvedObject.name":            func(e *corev1.Event) string { return e.InvolvedObject.Name },
		"involvedObject.uid":             func(e *corev1.Event) string { return string(e.InvolvedObject.UID) },
		"involvedObject.apiVersion":      func(e *corev1.Event) string { return e.InvolvedObject.APIVersion },
		"involvedObject.resourceVersion": func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion },
		"involvedObject.fieldPath":       func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
		"reason":                         func(e *corev1.Event) string { return e.Reason },
		"reportingComponent":             func(e *corev1.Event) string { return e.ReportingController },
		"source":                         func(e *corev1.Event) string { return cmp.Or(e.Source.Component, e.ReportingController) },
		"type":                           func(e *corev1.Event) string { return e.Type },
	},
	Table: generic.Table[*corev1.Event]{ColumnsOnly: true},
	Columns: []generic.Column[*corev1.Event]{
		{Name: "Last Seen", Description: corev1.Event{}.SwaggerDoc()["lastTimestamp"], Cell: lastSeen},
		{Name: "Type", Description: corev1.Event{}.SwaggerDoc()["type"], Cell: func(e *corev1.Event) any { return e.Type }},
		{Name: "Reason", Description: corev1.Event{}.SwaggerDoc()["reason"], Cell: func(e *corev1.Event) any { return e.Reason }},
		{Name: "Object", Description: corev1.Event{}.SwaggerDoc()["involvedObject"], Cell: eventTarget},
		{Name: "Subobject", Wide: true, Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], Cell: func(e *corev1.Event) any { return e.InvolvedObject.FieldPath }},
		{Name: "Source", Wide: true, Description: corev1.Event{}.SwaggerDoc()["source"], Cell: eventSource},
		{Name: "Message", Description: corev1.Event{}.SwaggerDoc()["message"], Cell: func(e *corev1.Event) any { return strings.TrimSpace(e.Message) }},
		{Name: "First Seen", Wide: true, Description: corev1.Event{}.SwaggerDoc()["firstTimestamp"], Cell: firstSeen},
		{Name: "Count", Wide: true, Description: corev1.Event{}.SwaggerDoc()["count"], Cell: eventCount},
		{Name: "Name", Wide: true, Description: metav1.ObjectMeta{}.SwaggerDoc()["name"], Cell: func(e *corev1.Event) any { return e.Name }},
	},
}

func ago(t time.Time) generic.Timed {
	return func(c clock.PassiveClock) string { return generic.Age(c, metav1.NewTime(t)) }
}

func firstSeen(e *corev1.Event) any {
	if e.FirstTimestamp.IsZero() {
		return ago(e.EventTime.Time)
	}
	return ago(e.FirstTimestamp.Time)
}

func lastSeen(e *corev1.Event) any {
	switch {
	case e.Series != nil:
		return ago(e.Series.LastObservedTime.Time)
	case e.LastTimestamp.IsZero():
		return firstSeen(e)
	}
	return ago(e.LastTimestamp.Time)
}

func eventTarget(e *corev1.Event) any {
	kind := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + e.InvolvedObject.Name
}

func eventSource(e *corev1.Event) any {
	component, instance := cmp.Or(e.Source.Component, e.ReportingController), cmp.Or(e.Source.Host, e.ReportingInstance)
	if instance == "" {
		return component
	}
	return component + ", " + instance
}

// eventCount counts an event of the newer form, which has no count, as one.
func eventCount(e *corev1.Event) any {
	if e.Series != nil {
		return e.Series.Count
	}
	return cmp.Or(e.Count, 1)
}

// Limits of events of the newer form (KEP-383), in bytes.
const (
	maxEventInstance = 128
	maxEventAction   = 128
	maxEventReason   = 128
	maxEventMessage  = 1024
)

// strictEvents reports whether the request came through events.k8s.io.
func strictEvents(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.APIGroup == "events.k8s.io"
}

func validateEvent(ctx context.Context, c *check.Checker, e *corev1.Event) {
	strict := strictEvents(ctx)
	validateEventForm(c, e, strict)
	if !strict {
		return
	}
	validateSeries(c, e)
	if e.EventTime.IsZero() {
		c.Required(field.NewPath("eventTime"), "")
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		c.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type))
	}
	for name, set := range map[string]bool{
		"firstTimestamp": !e.FirstTimestamp.IsZero(), "lastTimestamp": !e.LastTimestamp.IsZero(),
		"count": e.Count != 0, "source": e.Source != corev1.EventSource{},
	} {
		if set {
			c.Invalid(field.NewPath(name), "", "needs to be unset")
		}
	}
}

// validateEventForm checks the rules for all events. An event with an eventTime has the newer form.
func validateEventForm(c *check.Checker, e *corev1.Event, strict bool) {
	namespace := field.NewPath("involvedObject", "namespace")
	mismatch := field.Invalid(namespace, e.InvolvedObject.Namespace, "does not match event.namespace")
	if e.EventTime.IsZero() {
		clusterScoped := e.InvolvedObject.Namespace == "" && e.Namespace == metav1.NamespaceDefault
		if e.Namespace != e.InvolvedObject.Namespace && !clusterScoped {
			c.Add(mismatch)
		}
		return
	}
	if e.InvolvedObject.Namespace == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		c.Add(mismatch)
	}
	reporter := field.NewPath("reportingComponent")
	if strict {
		reporter = field.NewPath("reportingController")
	}
	if e.ReportingController == "" {
		c.Required(reporter, "")
	}
	c.QualifiedName(reporter, e.ReportingController)
	requiredText(c, "reportingInstance", e.ReportingInstance, maxEventInstance)
	requiredText(c, "action", e.Action, maxEventAction)
	requiredText(c, "reason", e.Reason, maxEventReason)
	shortText(c, "message", e.Message, maxEventMessage)
}

func requiredText(c *check.Checker, name, text string, limit int) {
	if text == "" {
		c.Required(field.NewPath(name), "")
		return
	}
	shortText(c, name, text, limit)
}

func shortText(c *check.Checker, name, text string, limit int) {
	if len(text) > limit {
		c.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %v characters", limit))
	}
}

func validateSeries(c *check.Checker, e *corev1.Event) {
	if e.Series == nil {
		return
	}
	if e.Series.Count < 2 {
		c.Invalid(field.NewPath("series.count"), "", "should be at least 2")
	}
	if e.Series.LastObservedTime.IsZero() {
		c.Required(field.NewPath("series.lastObservedTime"), "")
	}
}

// validateEventUpdate allows changes of the series only, in events of the newer form.
func validateEventUpdate(ctx context.Context, c *check.Checker, e, old *corev1.Event) {
	strict := strictEvents(ctx)
	validateEventForm(c, e, strict)
	if !strict {
		return
	}
	if !reflect.DeepEqual(e.Series, old.Series) {
		validateSeries(c, e)
	}
	immutable := func(name string, value, was any) {
		c.Immutable(field.NewPath(name), value, was)
	}
	immutable("involvedObject", e.InvolvedObject, old.InvolvedObject)
	immutable("reason", e.Reason, old.Reason)
	immutable("message", e.Message, old.Message)
	immutable("source", e.Source, old.Source)
	immutable("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	immutable("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	immutable("count", e.Count, old.Count)
	immutable("type", e.Type, old.Type)
	// Clients write times with microsecond precision.
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		immutable("eventTime", e.EventTime, old.EventTime)
	}
	immutable("action", e.Action, old.Action)
	immutable("related", e.Related, old.Related)
	immutable("reportingController", e.ReportingController, old.ReportingController)
	immutable("reportingInstance", e.ReportingInstance, old.ReportingInstance)
}
