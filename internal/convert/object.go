// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// conversion is the conversion of a kind from one version to another, by way of the stored one.
type conversion struct{ from, stored, to schema.GroupVersionKind }

func (c *Converter) convert(in *unstructured.Unstructured, v conversion) (Result, error) {
	older, notes, err := c.decode(in, v.from)
	if err != nil {
		return Result{Object: in}, err
	}
	target, err := c.between(older, v.from, v.stored, v.to)
	if err != nil {
		return Result{Object: in}, err
	}
	lost, err := c.lost(older, target, v)
	if err != nil {
		return Result{Object: in}, err
	}
	fields, err := fieldsOf(target)
	if err != nil {
		return Result{Object: in}, err
	}
	converted := runtime.DeepCopyJSON(fields)
	trim(fields, withCarried(in))
	written, err := c.writeDefaults(fields, converted, older, v)
	if err != nil {
		return Result{Object: in}, err
	}
	out := &unstructured.Unstructured{Object: fields}
	out.SetGroupVersionKind(v.to)
	notes = append(append(append(notes, lost...), written...), meaningOf(in, out, v)...)
	return Result{Object: out, Changed: true, Notes: notes}, nil
}

// decode decodes an object, and notes the fields that its version does not have.
func (c *Converter) decode(in *unstructured.Unstructured, kind schema.GroupVersionKind) (runtime.Object, []string, error) {
	encoded, err := in.MarshalJSON()
	if err != nil {
		return nil, nil, err
	}
	obj, _, err := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, c.scheme, c.scheme, serializer.SerializerOptions{Strict: true}).Decode(encoded, &kind, nil)
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return obj, nil, err
	}
	var notes []string
	for _, unknown := range strict.Errors() {
		notes = append(notes, fmt.Sprintf("%s: there is no such field in %s; dropped", fieldOf(unknown), kind.GroupVersion()))
	}
	return obj, notes, nil
}

// fieldOf returns the path in the error of an unknown field.
func fieldOf(unknown error) string {
	return strings.Trim(strings.TrimPrefix(unknown.Error(), "unknown field "), "\"")
}

// between converts through a series of kinds, of which the first is that of the object.
func (c *Converter) between(obj runtime.Object, kinds ...schema.GroupVersionKind) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	for i := 1; i < len(kinds); i++ {
		if kinds[i] == kinds[i-1] {
			continue
		}
		next, err := c.scheme.New(kinds[i])
		if err == nil {
			err = c.scheme.Convert(obj, next, nil)
		}
		if err != nil {
			return nil, err
		}
		obj = next
	}
	return obj, nil
}

// lost notes the fields that do not come back when the converted object is converted back.
func (c *Converter) lost(older, target runtime.Object, v conversion) ([]string, error) {
	back, err := c.between(target, v.to, v.stored, v.from)
	if err != nil {
		return nil, err
	}
	want, err := fieldsOf(older)
	if err != nil {
		return nil, err
	}
	got, err := fieldsOf(back)
	if err != nil {
		return nil, err
	}
	trim(want, nil)
	var notes []string
	for _, d := range differences(want, got) {
		if d.want != nil {
			notes = append(notes, fmt.Sprintf("%s: %s cannot be expressed in %s; dropped", d.path, text(d.want), v.to.GroupVersion()))
		}
	}
	return notes, nil
}

// writeDefaults writes the defaults of the old version into the fields of the new object, where the new
// version has other ones. It also restores a zero that was trimmed from what was converted, if the new
// version does not default to it.
func (c *Converter) writeDefaults(fields, converted map[string]any, older runtime.Object, v conversion) ([]string, error) {
	defaulted := older.DeepCopyObject()
	c.scheme.Default(defaulted)
	meant, err := c.between(defaulted, v.from, v.stored, v.to)
	if err != nil {
		return nil, err
	}
	want, err := fieldsOf(meant)
	if err != nil {
		return nil, err
	}
	got, err := c.defaulted(fields, v.to)
	if err != nil {
		return nil, err
	}
	var notes []string
	for _, d := range differences(want, got) {
		if d.want == nil || !d.path.set(fields, d.want) || reflect.DeepEqual(d.path.get(converted), d.want) {
			continue
		}
		other := "has no default"
		if d.got != nil {
			other = "defaults to " + text(d.got)
		}
		notes = append(notes, fmt.Sprintf("%s: set to %s, the default in %s; %s %s", d.path, text(d.want), v.from.GroupVersion(), v.to.GroupVersion(), other))
	}
	if got, err = c.defaulted(fields, v.to); err != nil {
		return nil, err
	}
	for _, d := range differences(want, got) {
		notes = append(notes, fmt.Sprintf("%s: defaults to %s in %s, and had %s in %s", d.path, text(d.got), v.to.GroupVersion(), text(d.want), v.from.GroupVersion()))
	}
	return notes, nil
}

// defaulted returns the fields with the defaults of their version.
func (c *Converter) defaulted(fields map[string]any, kind schema.GroupVersionKind) (map[string]any, error) {
	obj, err := c.scheme.New(kind)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj)
	}
	if err != nil {
		return nil, err
	}
	c.scheme.Default(obj)
	return fieldsOf(obj)
}

func fieldsOf(obj runtime.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err == nil {
		delete(fields, "apiVersion")
		delete(fields, "kind")
	}
	return fields, err
}

// text returns a value in one line.
func text(value any) string {
	if value == nil {
		return "no value"
	}
	if s, ok := value.(string); ok {
		return s
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(encoded)
}
