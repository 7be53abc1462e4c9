// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
)

// Column is one column of `kubectl get`.
type Column[T Object] struct {
	// Name is the heading in capitalised words; kubectl upper-cases it.
	Name string
	// Type is the OpenAPI type of a cell: string (if empty), integer, number
	// or boolean.
	Type string
	// Format is the OpenAPI format of a cell. That of a column called Name is "name", unless
	// PlainName is set.
	Format string
	// Wide columns are shown only by `-o wide`.
	Wide bool
	// Priority overrides the priority of a wide column, which is 1, if it is higher.
	Priority    int32
	Description string
	// PlainName keeps the Format of a column called Name.
	PlainName bool
	// Cell returns the value for an object, or a Timed value.
	Cell func(obj T) any
}

// Age returns how long ago t was, as kubectl formats it ("3m46s"), or <unknown>.
func Age(c clock.PassiveClock, t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(c.Since(t.Time))
}

// Timed is the value of a cell that depends on the time.
type Timed func(c clock.PassiveClock) string

// OrNone returns the text of a cell, or <none> if it is empty.
func OrNone(s string) string { return cmp.Or(s, "<none>") }

// tableConvertor converts objects of one kind to the Table that kubectl prints.
type tableConvertor[T Object] struct {
	clock      clock.PassiveClock
	columns    []Column[T]
	conditions func(T) []metav1.TableRowCondition
}

var objectMetaDoc = metav1.ObjectMeta{}.SwaggerDoc()

// newTableConvertor adds NAME before and AGE after the kind's columns, and moves wide columns
// to the end.
func newTableConvertor[T Object](kind *Kind[T], c clock.PassiveClock) tableConvertor[T] {
	if kind.Table.ColumnsOnly {
		return tableConvertor[T]{c, kind.Columns, kind.Table.RowConditions}
	}
	name := NameColumn[T]()
	if kind.Table.NameCell != nil {
		name.Cell = kind.Table.NameCell
	}
	columns := []Column[T]{name}
	var wide []Column[T]
	for _, column := range kind.Columns {
		if column.Wide || column.Priority > 0 {
			wide = append(wide, column)
			continue
		}
		columns = append(columns, column)
	}
	columns = append(columns, Column[T]{
		Name: "Age", Description: objectMetaDoc["creationTimestamp"],
		Cell: func(obj T) any {
			return Timed(func(c clock.PassiveClock) string { return Age(c, obj.GetCreationTimestamp()) })
		},
	})
	columns = append(columns, kind.Table.AfterAge...)
	return tableConvertor[T]{c, append(columns, wide...), kind.Table.RowConditions}
}

// NameColumn returns the column NAME.
func NameColumn[T Object]() Column[T] {
	return Column[T]{
		Name: "Name", Description: objectMetaDoc["name"],
		Cell: func(obj T) any { return obj.GetName() },
	}
}

// TableConvertor prints objects that are not stored, and so have no age.
func TableConvertor[T Object](columns ...Column[T]) rest.TableConvertor {
	return tableConvertor[T]{columns: columns}
}

// ConvertToTable implements rest.TableConvertor.
func (t tableConvertor[T]) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	out := &metav1.Table{}
	if opts, ok := options.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		out.ColumnDefinitions = t.definitions()
	}
	if list, err := meta.ListAccessor(object); err == nil && meta.IsListType(object) {
		out.ResourceVersion = list.GetResourceVersion()
		out.Continue = list.GetContinue()
		out.RemainingItemCount = list.GetRemainingItemCount()
		err := meta.EachListItem(object, func(item runtime.Object) error {
			out.Rows = append(out.Rows, t.row(item))
			return nil
		})
		return out, err
	}
	if m, err := meta.CommonAccessor(object); err == nil {
		out.ResourceVersion = m.GetResourceVersion()
	}
	out.Rows = []metav1.TableRow{t.row(object)}
	return out, nil
}

func (t tableConvertor[T]) definitions() []metav1.TableColumnDefinition {
	out := make([]metav1.TableColumnDefinition, 0, len(t.columns))
	for _, column := range t.columns {
		d := metav1.TableColumnDefinition{
			Name: column.Name, Type: column.Type, Format: column.Format,
			Priority: column.Priority, Description: column.Description,
		}
		if d.Type == "" {
			d.Type = "string"
		}
		if column.Name == "Name" && !column.PlainName {
			d.Format = "name"
		}
		if column.Wide {
			d.Priority = max(d.Priority, 1)
		}
		out = append(out, d)
	}
	return out
}

func (t tableConvertor[T]) row(object runtime.Object) metav1.TableRow {
	obj, ok := object.(T)
	row := metav1.TableRow{Object: runtime.RawExtension{Object: object}}
	if !ok {
		return row
	}
	if t.conditions != nil {
		row.Conditions = t.conditions(obj)
	}
	row.Cells = make([]any, 0, len(t.columns))
	for _, column := range t.columns {
		row.Cells = append(row.Cells, t.cell(column.Cell(obj)))
	}
	return row
}

// cell converts a value to one that a Table can encode: integers are int64.
func (t tableConvertor[T]) cell(value any) any {
	switch v := value.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case Timed:
		return v(t.clock)
	default:
		return v
	}
}
