// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/metrics/pkg/apis/metrics"
)

// columns are metrics-server's.
var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the resource"},
	{Name: "cpu", Type: "string", Format: "quantity"},
	{Name: "memory", Type: "string", Format: "quantity"},
	{Name: "Window", Type: "string", Format: "duration"},
}

func row(object runtime.Object, name string, cpu, memory resource.Quantity, window time.Duration) metav1.TableRow {
	return metav1.TableRow{
		Cells:  []any{name, cpu.String(), memory.String(), window.String()},
		Object: runtime.RawExtension{Object: object},
	}
}

func podTable(pods ...metrics.PodMetrics) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: columns, Rows: []metav1.TableRow{}}
	for i := range pods {
		var cpu, memory resource.Quantity
		for _, container := range pods[i].Containers {
			cpu.Add(container.Usage[v1.ResourceCPU])
			memory.Add(container.Usage[v1.ResourceMemory])
		}
		table.Rows = append(table.Rows, row(&pods[i], pods[i].Name, cpu, memory, pods[i].Window.Duration))
	}
	return table
}

func nodeTable(nodes ...metrics.NodeMetrics) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: columns, Rows: []metav1.TableRow{}}
	for i := range nodes {
		cpu, memory := nodes[i].Usage[v1.ResourceCPU], nodes[i].Usage[v1.ResourceMemory]
		table.Rows = append(table.Rows, row(&nodes[i], nodes[i].Name, cpu, memory, nodes[i].Window.Duration))
	}
	return table
}
