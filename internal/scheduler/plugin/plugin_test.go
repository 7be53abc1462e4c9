// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

func TestNodeFilters(t *testing.T) {
	const (
		wasCordoned = "!node(s) were unschedulable"
		wasTainted  = "!node(s) had untolerated taint(s)"
		wrongNode   = "!node(s) didn't match Pod's node affinity/selector"
	)
	noExecute := v1.Toleration{Key: "k", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	disk := func(values ...string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpIn, Values: values}}}
	}
	named := func(names ...string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: names}}}
	}
	required := func(terms ...v1.NodeSelectorTerm) podOption {
		return affine(v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
		}})
	}
	nodeSelector := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	disks := []on{{node: node("a", nodeLabel("disk", "ssd"))}, {node: node("b", nodeLabel("disk", "hdd"))}, {node: node("c")}}

	for _, tt := range []filterTest{
		{"cordoned", nodeUnschedulable{}, []on{{node: node("a", cordon)}, {node: node("b")}}, pod(), []string{wasCordoned, ""}},
		{"cordoned, tolerated", nodeUnschedulable{}, []on{{node: node("a", cordon)}},
			pod(tolerating(v1.Toleration{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists})), []string{""}},
		{"taints of each effect", taints{}, []on{
			{node: node("a", taint("k", v1.TaintEffectNoSchedule))},
			{node: node("b", taint("k", v1.TaintEffectNoExecute))},
			{node: node("c", taint("k", v1.TaintEffectPreferNoSchedule))},
		}, pod(), []string{wasTainted, wasTainted, ""}},
		{"tolerates one effect", taints{}, []on{
			{node: node("a", taint("k", v1.TaintEffectNoSchedule))},
			{node: node("b", taint("k", v1.TaintEffectNoExecute))},
		}, pod(tolerating(noExecute)), []string{wasTainted, ""}},
		{"tolerates everything", taints{}, []on{{node: node("a", taint("k", v1.TaintEffectNoSchedule))}},
			pod(tolerating(v1.Toleration{Operator: v1.TolerationOpExists})), []string{""}},
		{"selector", nodeAffinity{}, disks, pod(nodeSelector), []string{"", wrongNode, wrongNode}},
		{"terms are alternatives", nodeAffinity{}, disks, pod(required(disk("ssd"), disk("hdd"))), []string{"", "", wrongNode}},
		{"selector and affinity", nodeAffinity{}, disks, pod(nodeSelector, required(disk("hdd"))), []string{wrongNode, wrongNode, wrongNode}},
		{"term with the node's name", nodeAffinity{}, disks, pod(required(named("b"))), []string{wrongNode, "", wrongNode}},
		{"contradictory terms", nodeAffinity{}, disks[:1], pod(required(v1.NodeSelectorTerm{
			MatchFields: append(named("a").MatchFields, named("b").MatchFields...),
		})), []string{"!pod affinity terms conflict"}},
		{"feature of few nodes", nodeFeatures{}, []on{{node: node("a")}, {node: node("b", declaring("RestartAllContainersOnContainerExits"))}},
			pod(restartingAll), []string{"!node(s) didn't match Pod's required features", ""}},
		{"no feature", nodeFeatures{}, []on{{node: node("a")}}, pod(), []string{""}},
	} {
		tt.run(t)
	}
}

func declaring(features ...string) nodeOption {
	return func(n *v1.Node) { n.Status.DeclaredFeatures = features }
}

func restartingAll(p *v1.Pod) {
	p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
}

// TestFeaturesWake: a pod that needs a feature is tried again when a node declares other features.
func TestFeaturesWake(t *testing.T) {
	plain, declares := node("a"), node("a", declaring("RestartAllContainersOnContainerExits"))
	for _, tt := range []struct {
		event Event
		want  bool
	}{
		{Event{Kind: NodeAdded, Node: declares}, true},
		{Event{Kind: NodeChanged, OldNode: plain, Node: declares}, true},
		{Event{Kind: NodeChanged, OldNode: declares, Node: declares}, false},
		{Event{Kind: PodGone}, false},
	} {
		if got := (nodeFeatures{}).Wakes(nil, &tt.event, pod(restartingAll)); got != tt.want {
			t.Errorf("event %d: wakes %t", tt.event.Kind, got)
		}
	}
}

func TestNodeAffinityNarrows(t *testing.T) {
	term := func(names ...string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: names}}}
	}
	other := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "x", Operator: v1.NodeSelectorOpExists}}}
	for _, tt := range []struct {
		name  string
		terms []v1.NodeSelectorTerm
		want  []string
	}{
		{"one", []v1.NodeSelectorTerm{term("a")}, []string{"a"}},
		{"alternatives", []v1.NodeSelectorTerm{term("a"), term("b", "c")}, []string{"a", "b", "c"}},
		{"one alternative names none", []v1.NodeSelectorTerm{term("a"), other}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := namedNodes(tt.terms)
			if len(got) != len(tt.want) || !got.HasAll(tt.want...) || (got == nil) != (tt.want == nil) {
				t.Errorf("namedNodes() = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestHostPorts(t *testing.T) {
	const taken = "node(s) didn't have free ports for the requested pod ports"
	with := func(opts ...podOption) []on { return []on{{node("a"), []*model.Pod{pod(opts...)}}} }
	sidecar := func(restart *v1.ContainerRestartPolicy) podOption {
		return func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{RestartPolicy: restart, Ports: []v1.ContainerPort{{HostPort: 80}}}}
		}
	}
	for _, tt := range []filterTest{
		{"same", hostPorts{}, with(hostPort("", "TCP", 80)), pod(hostPort("", "TCP", 80)), []string{taken}},
		{"default protocol", hostPorts{}, with(hostPort("", "", 80)), pod(hostPort("", "TCP", 80)), []string{taken}},
		{"other protocol", hostPorts{}, with(hostPort("", "UDP", 80)), pod(hostPort("", "TCP", 80)), []string{""}},
		{"other port", hostPorts{}, with(hostPort("", "TCP", 81)), pod(hostPort("", "TCP", 80)), []string{""}},
		{"same address", hostPorts{}, with(hostPort("10.0.0.1", "UDP", 80)), pod(hostPort("10.0.0.1", "UDP", 80)), []string{taken}},
		{"all addresses, other protocol", hostPorts{}, with(hostPort("", "UDP", 80)), pod(hostPort("10.0.0.1", "TCP", 80)), []string{""}},
		{"other address", hostPorts{}, with(hostPort("10.0.0.1", "TCP", 80)), pod(hostPort("10.0.0.2", "TCP", 80)), []string{""}},
		{"all addresses wanted", hostPorts{}, with(hostPort("10.0.0.1", "TCP", 80)), pod(hostPort("0.0.0.0", "TCP", 80)), []string{taken}},
		{"all addresses taken", hostPorts{}, with(hostPort("", "TCP", 80)), pod(hostPort("10.0.0.2", "TCP", 80)), []string{taken}},
		{"sidecar", hostPorts{}, with(sidecar(ptr.To(v1.ContainerRestartPolicyAlways))), pod(hostPort("", "TCP", 80)), []string{taken}},
		{"init container", hostPorts{}, with(sidecar(nil)), pod(hostPort("", "TCP", 80)), []string{""}},
	} {
		tt.run(t)
	}
}

func TestResourcesFit(t *testing.T) {
	full := []on{{node("a"), []*model.Pod{pod(requests("cpu", "3", "memory", "6Gi"))}}}
	initContainer := func(cpu string) podOption {
		return func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("cpu", cpu)}}}
		}
	}
	sidecar := func(cpu string) podOption {
		return func(p *v1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{
				RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways),
				Resources:     v1.ResourceRequirements{Requests: list("cpu", cpu)},
			})
		}
	}
	overhead := func(p *v1.Pod) { p.Spec.Overhead = list("cpu", "500m") }
	podLevel := func(cpu string) podOption {
		return func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", cpu)} }
	}
	gpu := []on{{node("a", allocatable("cpu", "1", "pods", "2", "example.com/gpu", "1", "ephemeral-storage", "1Gi", "hugepages-2Mi", "4Mi")),
		[]*model.Pod{pod(requests("example.com/gpu", "1"))}}}
	one := []on{{node("a", allocatable("cpu", "1", "pods", "1")), []*model.Pod{pod()}}}

	for _, tt := range []filterTest{
		{"fits exactly", resourcesFit{}, full, pod(requests("cpu", "1", "memory", "2Gi")), []string{""}},
		{"no requests on a full node", resourcesFit{}, full, pod(), []string{""}},
		{"cpu", resourcesFit{}, full, pod(requests("cpu", "1001m")), []string{"Insufficient cpu"}},
		{"CPU and memory, in a stable order", resourcesFit{}, full, pod(requests("memory", "3Gi", "cpu", "2")), []string{"Insufficient cpu, Insufficient memory"}},
		{"more than the node has", resourcesFit{}, full, pod(requests("cpu", "5")), []string{"!Insufficient cpu"}},
		{"init container counts at its peak", resourcesFit{}, full, pod(requests("cpu", "500m"), initContainer("1100m")), []string{"Insufficient cpu"}},
		{"init container does not add up", resourcesFit{}, full, pod(requests("cpu", "500m"), initContainer("1")), []string{""}},
		{"sidecar adds up", resourcesFit{}, full, pod(requests("cpu", "600m"), sidecar("500m")), []string{"Insufficient cpu"}},
		{"overhead adds up", resourcesFit{}, full, pod(requests("cpu", "600m"), overhead), []string{"Insufficient cpu"}},
		{"the pod's own request decides", resourcesFit{}, full, pod(requests("cpu", "100m"), podLevel("2")), []string{"Insufficient cpu"}},
		{"pods", resourcesFit{}, one, pod(), []string{"Too many pods"}},
		{"pods and cpu", resourcesFit{}, one, pod(requests("cpu", "2")), []string{"!Too many pods, Insufficient cpu"}},
		{"extended", resourcesFit{}, gpu, pod(requests("example.com/gpu", "1")), []string{"Insufficient example.com/gpu"}},
		{"unknown extended", resourcesFit{}, gpu, pod(requests("example.com/fpga", "1")), []string{"!Insufficient example.com/fpga"}},
		{"ephemeral storage", resourcesFit{}, gpu, pod(requests("ephemeral-storage", "2Gi")), []string{"!Insufficient ephemeral-storage"}},
		{"huge pages", resourcesFit{}, gpu, pod(requests("hugepages-2Mi", "4Mi")), []string{""}},
		{"too many huge pages", resourcesFit{}, gpu, pod(requests("hugepages-2Mi", "6Mi")), []string{"!Insufficient hugepages-2Mi"}},
	} {
		tt.run(t)
	}
}

func TestTopologySpread(t *testing.T) {
	const (
		tooSkewed = "node(s) didn't match pod topology spread constraints"
		noLabel   = "!node(s) didn't match pod topology spread constraints (missing required label)"
	)
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	zone := v1.TopologySpreadConstraint{TopologyKey: "zone", MaxSkew: 1, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: app}
	with := func(f func(*v1.TopologySpreadConstraint)) v1.TopologySpreadConstraint {
		c := zone
		f(&c)
		return c
	}
	a := labelled("app", "a")
	zones := func(z1, z2 int) []on {
		places := []on{{node: node("n1", nodeLabel("zone", "z1"))}, {node: node("n2", nodeLabel("zone", "z2"))}}
		for range z1 {
			places[0].pods = append(places[0].pods, pod(a))
		}
		for range z2 {
			places[1].pods = append(places[1].pods, pod(a))
		}
		return places
	}
	tainted := zones(1, 0)
	tainted[1].node.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}

	for _, tt := range []filterTest{
		{"even", topologySpread{}, zones(1, 1), pod(a, spread(zone)), []string{"", ""}},
		{"skewed", topologySpread{}, zones(1, 0), pod(a, spread(zone)), []string{tooSkewed, ""}},
		{"allowed skew", topologySpread{}, zones(1, 0), pod(a, spread(with(func(c *v1.TopologySpreadConstraint) { c.MaxSkew = 2 }))), []string{"", ""}},
		{"a pod that does not count itself", topologySpread{}, zones(1, 0), pod(spread(zone)), []string{"", ""}},
		{"ScheduleAnyway is not a filter", topologySpread{}, zones(1, 0), pod(a, spread(with(func(c *v1.TopologySpreadConstraint) { c.WhenUnsatisfiable = v1.ScheduleAnyway }))), []string{"", ""}},
		{"other namespace", topologySpread{}, zones(1, 0), pod(a, inNamespace("other"), spread(zone)), []string{"", ""}},
		{"missing label", topologySpread{}, append(zones(0, 0), on{node: node("n3")}), pod(a, spread(zone)), []string{"", "", noLabel}},
		{"terminating pods do not count", topologySpread{}, []on{
			{node("n1", nodeLabel("zone", "z1")), []*model.Pod{pod(a, leaving)}}, {node: node("n2", nodeLabel("zone", "z2"))},
		}, pod(a, spread(zone)), []string{"", ""}},
		{"fewer domains than minDomains", topologySpread{}, zones(1, 1),
			pod(a, spread(with(func(c *v1.TopologySpreadConstraint) { c.MinDomains = ptr.To[int32](3) }))), []string{tooSkewed, tooSkewed}},
		{"tainted nodes count", topologySpread{}, tainted, pod(a, spread(zone)), []string{tooSkewed, ""}},
		{"tainted nodes do not count", topologySpread{}, tainted,
			pod(a, spread(with(func(c *v1.TopologySpreadConstraint) { c.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicyHonor) }))), []string{"", ""}},
		{"nodes excluded by affinity do not count", topologySpread{}, zones(1, 0),
			pod(a, spread(zone), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "z1"} }), []string{"", ""}},
		{"matchLabelKeys separates revisions", topologySpread{}, zones(1, 0),
			pod(labelled("app", "a", "rev", "2"), spread(with(func(c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"rev"} }))), []string{"", ""}},
	} {
		tt.run(t)
	}
}

func TestPodAffinity(t *testing.T) {
	const (
		far     = "!node(s) didn't match pod affinity rules"
		near    = "node(s) didn't match pod anti-affinity rules"
		hostile = "node(s) didn't satisfy existing pods anti-affinity rules"
	)
	term := func(key string, value string, edit ...func(*v1.PodAffinityTerm)) v1.PodAffinityTerm {
		t := v1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": value}}}
		for _, f := range edit {
			f(&t)
		}
		return t
	}
	together := func(terms ...v1.PodAffinityTerm) podOption {
		return affine(v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}})
	}
	apart := func(terms ...v1.PodAffinityTerm) podOption {
		return affine(v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}})
	}
	teamB := func(t *v1.PodAffinityTerm) {
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
	}
	inOther := func(t *v1.PodAffinityTerm) { t.Namespaces = []string{"other"} }
	a, b := labelled("app", "a"), labelled("app", "b")
	// Nodes 1 and 2 are in one zone, node 3 is in another. The pod is on node 1.
	zones := func(p *model.Pod) []on {
		return []on{
			{node("n1", nodeLabel("zone", "z1")), []*model.Pod{p}},
			{node: node("n2", nodeLabel("zone", "z1"))},
			{node: node("n3", nodeLabel("zone", "z2"))},
		}
	}
	for _, tt := range []filterTest{
		{"no terms", podAffinity{}, zones(pod(a)), pod(), []string{"", "", ""}},
		{"together on a host", podAffinity{}, zones(pod(a)), pod(together(term(v1.LabelHostname, "a"))), []string{"", far, far}},
		{"together in a zone", podAffinity{}, zones(pod(a)), pod(together(term("zone", "a"))), []string{"", "", far}},
		{"all terms must match", podAffinity{}, zones(pod(a)), pod(together(term("zone", "a"), term("zone", "b"))), []string{far, far, far}},
		{"first pod that matches its own term", podAffinity{}, zones(pod(b)), pod(a, together(term("zone", "a"))), []string{"", "", ""}},
		{"first pod that does not match its own term", podAffinity{}, zones(pod(b)), pod(b, together(term("zone", "a"))), []string{far, far, far}},
		{"apart on a host", podAffinity{}, zones(pod(a)), pod(apart(term(v1.LabelHostname, "a"))), []string{near, "", ""}},
		{"apart in a zone", podAffinity{}, zones(pod(a)), pod(apart(term("zone", "a"))), []string{near, near, ""}},
		{"apart, no pod matches", podAffinity{}, zones(pod(b)), pod(apart(term("zone", "a"))), []string{"", "", ""}},
		{"anti-affinity of an existing pod", podAffinity{}, zones(pod(apart(term("zone", "a")))), pod(a), []string{hostile, hostile, ""}},
		{"anti-affinity of an existing pod does not match", podAffinity{}, zones(pod(apart(term("zone", "a")))), pod(b), []string{"", "", ""}},
		{"other namespace", podAffinity{}, zones(pod(a, inNamespace("other"))), pod(apart(term("zone", "a"))), []string{"", "", ""}},
		{"named namespace", podAffinity{}, zones(pod(a, inNamespace("other"))), pod(apart(term("zone", "a", inOther))), []string{near, near, ""}},
		{"selected namespace", podAffinity{}, zones(pod(a, inNamespace("other"))), pod(apart(term("zone", "a", teamB))), []string{near, near, ""}},
		{"namespace not selected", podAffinity{}, zones(pod(a)), pod(apart(term("zone", "a", teamB))), []string{"", "", ""}},
		{"node without the topology label", podAffinity{}, []on{{node: node("n1")}}, pod(a, together(term("zone", "a"))), []string{far}},
	} {
		tt.run(t)
	}
}

// TestSpanningChecksFollowMoves: after Move, a spanning check returns the same as a new check on
// the changed cluster.
func TestSpanningChecksFollowMoves(t *testing.T) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	term := v1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: app}
	waiting := map[string]*model.Pod{
		"spread": pod(labelled("app", "a"), spread(v1.TopologySpreadConstraint{TopologyKey: "zone", MaxSkew: 1, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: app})),
		"apart":  pod(affine(v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}})),
		"near":   pod(affine(v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}})),
	}
	for name, p := range waiting {
		for _, filter := range []Filter{topologySpread{}, podAffinity{}} {
			mover := pod(labelled("app", "a"))
			n1, n2 := node("n1", nodeLabel("zone", "z1")), node("n2", nodeLabel("zone", "z2"))
			without := clusterOf(on{node: n1}, on{node: n2})
			with := clusterOf(on{n1, []*model.Pod{mover}}, on{node: n2})

			check, _ := filter.For(without, p)
			if check == nil {
				continue
			}
			moved := check.(Spanning).Clone()
			moved.Move(mover, without.Nodes()[0], 1)
			fresh, _ := filter.For(with, p)
			for i := range 2 {
				got, want := rejectionText(moved.Check(without.Nodes()[i])), rejectionText(fresh.Check(with.Nodes()[i]))
				if got != want {
					t.Errorf("%s, %s: node %d: after Move %q, from scratch %q", name, filter.Name(), i, got, want)
				}
			}
			moved.Move(mover, without.Nodes()[0], -1)
			for i, n := range without.Nodes() {
				if got, want := rejectionText(moved.Check(n)), rejectionText(check.Check(n)); got != want {
					t.Errorf("%s, %s: node %d: moved back %q, before %q", name, filter.Name(), i, got, want)
				}
			}
		}
	}
}
