// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/metrics/pkg/apis/metrics"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/node/stats"
)

// bed is a collector of two nodes: a serves what the test sets, b never answers, unless it is in this process.
type bed struct {
	*Collector
	clock *testingclock.FakeClock
	// report is what node a reports, and reads how often it was asked.
	report atomic.Pointer[string]
	reads  atomic.Int32
	// local is what node b uses; nil if it is not in this process.
	local stats.Source
	pods  cache.Indexer
	nodes cache.Indexer
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{
		clock: testingclock.NewFakeClock(zero),
		pods:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.reads.Add(1)
		report := b.report.Load()
		if r.URL.Path != "/metrics/resource" || report == nil {
			http.Error(w, "unavailable", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(*report))
	}))
	t.Cleanup(agent.Close)
	b.Collector = NewCollector(Options{
		Pods: corelisters.NewPodLister(b.pods), Nodes: corelisters.NewNodeLister(b.nodes), Clock: b.clock,
		Local: func(node string) stats.Source {
			if node == "b" {
				return b.local
			}
			return nil
		},
		Connect: func(_ context.Context, node string) (*url.URL, http.RoundTripper, error) {
			if node != "a" {
				return nil, nil, errors.New("no such host")
			}
			address, err := url.Parse(agent.URL)
			return address, http.DefaultTransport, err
		},
	})
	for _, name := range []string{"a", "b"} {
		b.add(t, b.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": name}}, Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		}})
	}
	for i, phase := range []v1.PodPhase{v1.PodRunning, v1.PodRunning, v1.PodSucceeded} {
		name := fmt.Sprintf("p%d", i)
		b.add(t, b.pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name}},
			Spec:       v1.PodSpec{NodeName: "a"}, Status: v1.PodStatus{Phase: phase},
		})
	}
	return b
}

func (b *bed) add(t *testing.T, to cache.Indexer, object any) {
	t.Helper()
	if err := to.Add(object); err != nil {
		t.Fatal(err)
	}
}

// sample lets node a report that each of its containers used cpu seconds up to a second, and collects.
func (b *bed) sample(t *testing.T, second int, cpu float64) {
	t.Helper()
	b.clock.SetTime(at(second))
	var text strings.Builder
	ms := at(second).UnixMilli()
	for _, of := range []string{`{container="c",namespace="ns",pod="p0"}`, `{container="d",namespace="ns",pod="p0"}`, `{container="c",namespace="ns",pod="p1"}`, `{container="c",namespace="ns",pod="p2"}`} {
		fmt.Fprintf(&text, "container_cpu_usage_seconds_total%s %v %d\ncontainer_memory_working_set_bytes%s 1024 %d\n", of, cpu, ms, of, ms)
	}
	fmt.Fprintf(&text, "node_cpu_usage_seconds_total %v %d\nnode_memory_working_set_bytes 8192 %d\n", 4*cpu, ms, ms)
	report := text.String()
	b.report.Store(&report)
	b.collect(t.Context())
}

func list(t *testing.T, b *bed, options *metainternalversion.ListOptions) []metrics.PodMetrics {
	t.Helper()
	got, err := NewPodMetrics(b.Collector).List(request.WithNamespace(t.Context(), "ns"), options)
	if err != nil {
		t.Fatal(err)
	}
	return got.(*metrics.PodMetricsList).Items
}

// TestLocalNode: a node in this process is asked without a connection.
func TestLocalNode(t *testing.T) {
	b := newBed(t)
	b.add(t, b.pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: v1.PodSpec{NodeName: "b"}, Status: v1.PodStatus{Phase: v1.PodRunning}})
	for i := range 2 {
		used := stats.Usage{Time: at(15 * i), CPU: time.Duration(3*i) * time.Second, Memory: 1024}
		b.local = func(context.Context) (stats.Summary, error) {
			return stats.Summary{Node: &used, Pods: []stats.Pod{{Namespace: "ns", Name: "q", Containers: []stats.Container{{Name: "c", Usage: used}}}}}, nil
		}
		b.sample(t, 15*i, float64(i))
	}
	got := list(t, b, &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "q")})
	if len(got) != 1 || got[0].Containers[0].Usage.Cpu().String() != "200m" || got[0].Containers[0].Usage.Memory().String() != "1Ki" {
		t.Errorf("got %+v", got)
	}
	if used := b.node("b"); used.window() != 15*time.Second {
		t.Errorf("the node: %+v", used)
	}
}

func TestPodMetrics(t *testing.T) {
	b := newBed(t)
	b.sample(t, 0, 10)
	if got := list(t, b, nil); len(got) != 0 {
		t.Errorf("after one sample: %v", got)
	}
	endpoint, ctx := NewPodMetrics(b.Collector), request.WithNamespace(t.Context(), "ns")
	if _, err := endpoint.Get(ctx, "p0", nil); !apierrors.IsNotFound(err) || err.Error() != `podmetrics.metrics.k8s.io "ns/p0" not found` {
		t.Errorf("get after one sample: %v", err)
	}
	b.sample(t, 15, 16)
	got := list(t, b, nil)
	if len(got) != 2 || got[0].Name != "p0" || got[1].Name != "p1" {
		t.Fatalf("got %v", got)
	}
	first := got[0]
	if len(first.Containers) != 2 || first.Containers[0].Name != "c" || first.Containers[0].Usage.Cpu().String() != "400m" || first.Containers[0].Usage.Memory().String() != "1Ki" {
		t.Errorf("got %v", first)
	}
	if first.Window.Duration != Interval || !first.Timestamp.Time.Equal(at(15)) || first.Labels["app"] != "p0" {
		t.Errorf("got %v", first)
	}
	for _, options := range []*metainternalversion.ListOptions{
		{LabelSelector: labels.SelectorFromSet(labels.Set{"app": "p1"})},
		{FieldSelector: fields.OneTermEqualSelector("metadata.name", "p1")},
	} {
		if got := list(t, b, options); len(got) != 1 || got[0].Name != "p1" {
			t.Errorf("selected %v", got)
		}
	}
	one, err := endpoint.Get(ctx, "p0", nil)
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.ConvertToTable(ctx, one, nil)
	if err != nil || fmt.Sprint(table.Rows[0].Cells) != "[p0 800m 2Ki 15s]" {
		t.Errorf("table: %v, %v", table, err)
	}
	for name, want := range map[string]string{"p2": `podmetrics.metrics.k8s.io "ns/p2" not found`, "none": `pod "none" not found`} {
		if _, err := endpoint.Get(ctx, name, nil); err == nil || err.Error() != want {
			t.Errorf("get %s: %v, want %s", name, err, want)
		}
	}
}

func TestNodeMetrics(t *testing.T) {
	b := newBed(t)
	b.sample(t, 0, 10)
	b.sample(t, 15, 16)
	endpoint := NewNodeMetrics(b.Collector)
	got, err := endpoint.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.ConvertToTable(t.Context(), got, nil)
	if err != nil || len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells) != "[a 1600m 8Ki 15s]" {
		t.Errorf("table: %v, %v", table, err)
	}
	if one, err := endpoint.Get(t.Context(), "a", nil); err != nil || one.(*metrics.NodeMetrics).Labels["zone"] != "a" {
		t.Errorf("get a: %v, %v", one, err)
	}
	for name, want := range map[string]string{"b": `nodemetrics.metrics.k8s.io "b" not found`, "none": `node "none" not found`} {
		if _, err := endpoint.Get(t.Context(), name, nil); err == nil || err.Error() != want {
			t.Errorf("get %s: %v, want %s", name, err, want)
		}
	}
	none, err := endpoint.List(t.Context(), &metainternalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"zone": "b"})})
	if err != nil || len(none.(*metrics.NodeMetricsList).Items) != 0 {
		t.Errorf("selected %v, %v", none, err)
	}
}

// TestLostNode: metrics that are not current are not shown.
func TestLostNode(t *testing.T) {
	b := newBed(t)
	b.sample(t, 0, 10)
	b.sample(t, 15, 16)
	node, _, err := b.nodes.GetByKey("a")
	if err != nil {
		t.Fatal(err)
	}
	lost := node.(*v1.Node).DeepCopy()
	lost.Status.Conditions[0].Status = v1.ConditionUnknown
	b.add(t, b.nodes, lost)
	b.sample(t, 30, 20)
	if got := list(t, b, nil); len(got) != 0 || b.reads.Load() != 2 {
		t.Errorf("a node that is not ready was read %d times, and has %v", b.reads.Load(), got)
	}
	b.add(t, b.nodes, node)
	b.sample(t, 45, 30)
	b.sample(t, 60, 31.5)
	if got := list(t, b, nil); len(got) != 2 || got[1].Containers[0].Usage.Cpu().String() != "100m" {
		t.Errorf("after it returned: %v", got)
	}
	b.report.Store(nil)
	b.collect(t.Context())
	if got := list(t, b, nil); len(got) != 0 {
		t.Errorf("after a failed read: %v", got)
	}
}

func TestRun(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	for want := int32(1); want <= 3; want++ {
		for deadline := time.Now().Add(10 * time.Second); b.reads.Load() < want || !b.clock.HasWaiters(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d reads, want %d", b.reads.Load(), want)
			}
		}
		b.clock.Step(Interval)
	}
	cancel()
	<-done
}
