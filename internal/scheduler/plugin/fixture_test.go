// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// podOption and nodeOption change a default pod or node.
type podOption func(*v1.Pod)
type nodeOption func(*v1.Node)

var podCount int

func pod(opts ...podOption) *model.Pod {
	podCount++
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", podCount), UID: types.UID(fmt.Sprint("uid", podCount))},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}
	for _, opt := range opts {
		opt(p)
	}
	return model.NewPod(p)
}

func node(name string, opts ...nodeOption) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status:     v1.NodeStatus{Allocatable: list("cpu", "4", "memory", "8Gi", "pods", "10")},
	}
	for _, opt := range opts {
		opt(n)
	}
	return n
}

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func requests(pairs ...string) podOption {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = list(pairs...) }
}

func labelled(pairs ...string) podOption {
	return func(p *v1.Pod) {
		p.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

func inNamespace(name string) podOption { return func(p *v1.Pod) { p.Namespace = name } }

func tolerating(t ...v1.Toleration) podOption { return func(p *v1.Pod) { p.Spec.Tolerations = t } }

func hostPort(ip string, protocol v1.Protocol, number int32) podOption {
	return func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = append(c.Ports, v1.ContainerPort{HostIP: ip, Protocol: protocol, HostPort: number})
	}
}

func affine(a v1.Affinity) podOption { return func(p *v1.Pod) { p.Spec.Affinity = &a } }

func spread(c ...v1.TopologySpreadConstraint) podOption {
	return func(p *v1.Pod) { p.Spec.TopologySpreadConstraints = c }
}

func ownedBy(uid types.UID) podOption {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: uid, Controller: ptr.To(true)}}
	}
}

func leaving(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func nodeLabel(key, value string) nodeOption { return func(n *v1.Node) { n.Labels[key] = value } }

func taint(key string, effect v1.TaintEffect) nodeOption {
	return func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: effect}) }
}

func cordon(n *v1.Node) { n.Spec.Unschedulable = true }

func allocatable(pairs ...string) nodeOption {
	return func(n *v1.Node) { n.Status.Allocatable = list(pairs...) }
}

func image(name string, size int64) nodeOption {
	return func(n *v1.Node) {
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{name}, SizeBytes: size})
	}
}

// on is a node and its pods.
type on struct {
	node *v1.Node
	pods []*model.Pod
}

func clusterOf(places ...on) *model.Cluster {
	c := model.NewCluster()
	c.SetNamespace("default", labels.Set{"team": "a"})
	c.SetNamespace("other", labels.Set{"team": "b"})
	for _, place := range places {
		c.SetNode(place.node)
		for _, p := range place.pods {
			c.Place(p, place.node.Name)
		}
	}
	return c
}

// rejections returns the reasons of a filter for each node: "" if the pod fits, with the prefix "!"
// if removing pods would not help.
func rejections(f Filter, c *model.Cluster, p *model.Pod) []string {
	check, rejection := f.For(c, p)
	var all []string
	for _, n := range c.Nodes() {
		r := rejection
		if r == nil && check != nil {
			r = check.Check(n)
		}
		all = append(all, rejectionText(r))
	}
	return all
}

func rejectionText(r *Rejection) string {
	if r == nil {
		return ""
	}
	text := ""
	if r.Unresolvable {
		text = "!"
	}
	for i, reason := range r.Reasons {
		if i > 0 {
			text += ", "
		}
		text += reason
	}
	return text
}

type filterTest struct {
	name    string
	filter  Filter
	cluster []on
	pod     *model.Pod
	want    []string
}

func (tt filterTest) run(t *testing.T) {
	t.Run(tt.filter.Name()+"/"+tt.name, func(t *testing.T) {
		got := rejections(tt.filter, clusterOf(tt.cluster...), tt.pod)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("rejections (-want +got):\n%s", diff)
		}
	})
}
