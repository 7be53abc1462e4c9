// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

// wantErrors compares errors, in any order, with how they begin.
func wantErrors(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got  %q\n want %q", name, got, want)
	}
}

func TestConfigMaps(t *testing.T) {
	big := strings.Repeat("x", corev1.MaxSecretSize)
	for name, test := range map[string]struct {
		object corev1.ConfigMap
		want   []string
	}{
		"good":                            {corev1.ConfigMap{Data: map[string]string{"a.b-c_d": ""}, BinaryData: map[string][]byte{"b": nil}}, nil},
		"bad key":                         {corev1.ConfigMap{Data: map[string]string{"a/b": ""}}, []string{`data[a/b]: Invalid value: "a/b": a valid config key must consist`}},
		"parent":                          {corev1.ConfigMap{BinaryData: map[string][]byte{"..": nil}}, []string{`binaryData[..]: Invalid value: "..": must not be '..'`}},
		"in data and binaryData":          {corev1.ConfigMap{Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"a": nil}}, []string{`data[a]: Invalid value: "a": duplicate of key present in binaryData`}},
		"maximum size":                    {corev1.ConfigMap{Data: map[string]string{"a": big}}, nil},
		"one byte above the maximum size": {corev1.ConfigMap{Data: map[string]string{"a": big}, BinaryData: map[string][]byte{"b": {1}}}, []string{`[]: Too long: may not be more than 1048576 bytes`}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), ConfigMap.Validate, &test.object), test.want...)
	}
}

func TestImmutableData(t *testing.T) {
	old := &corev1.ConfigMap{Immutable: new(true), Data: map[string]string{"a": "1"}}
	for name, test := range map[string]struct {
		object corev1.ConfigMap
		want   []string
	}{
		"labels":                 {corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Immutable: new(true), Data: old.Data}, nil},
		"data":                   {corev1.ConfigMap{Immutable: new(true), Data: map[string]string{"a": "2"}}, []string{"data: Forbidden: field is immutable when `immutable` is set"}},
		"binary data":            {corev1.ConfigMap{Immutable: new(true), Data: old.Data, BinaryData: map[string][]byte{"b": {1}}}, []string{"binaryData: Forbidden"}},
		"mutable":                {corev1.ConfigMap{Data: old.Data}, []string{"immutable: Forbidden"}},
		"immutable set to false": {corev1.ConfigMap{Immutable: new(false), Data: old.Data}, []string{"immutable: Forbidden"}},
	} {
		wantErrors(t, name, checktest.UpdateErrors(t.Context(), ConfigMap.ValidateUpdate, &test.object, old), test.want...)
	}
	secret := &corev1.Secret{Immutable: new(true), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": {1}}}
	changed := &corev1.Secret{Immutable: new(true), Type: "other", Data: map[string][]byte{"a": {2}}}
	wantErrors(t, "secret", checktest.UpdateErrors(t.Context(), Secret.ValidateUpdate, changed, secret), `type: Invalid value: "other": field is immutable`, "data: Forbidden")
}

func TestSecretTypes(t *testing.T) {
	data := func(keys ...string) map[string][]byte {
		out := map[string][]byte{}
		for _, key := range keys {
			out[key] = []byte("{}")
		}
		return out
	}
	for name, test := range map[string]struct {
		object corev1.Secret
		want   []string
	}{
		"opaque":                 {corev1.Secret{Type: corev1.SecretTypeOpaque}, nil},
		"token":                  {corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}, []string{"metadata.annotations[kubernetes.io/service-account.name]: Required"}},
		"docker":                 {corev1.Secret{Type: corev1.SecretTypeDockerConfigJson}, []string{"data[.dockerconfigjson]: Required"}},
		"docker, valid":          {corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: data(".dockerconfigjson")}, nil},
		"docker, not JSON":       {corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{".dockercfg": []byte("secret!")}}, []string{`data[.dockercfg]: Invalid value: "<secret contents redacted>"`}},
		"basic auth":             {corev1.Secret{Type: corev1.SecretTypeBasicAuth}, []string{"data[username]: Required", "data[password]: Required"}},
		"basic auth, one of two": {corev1.Secret{Type: corev1.SecretTypeBasicAuth, Data: data("password")}, nil},
		"ssh":                    {corev1.Secret{Type: corev1.SecretTypeSSHAuth}, []string{"data[ssh-privatekey]: Required"}},
		"tls":                    {corev1.Secret{Type: corev1.SecretTypeTLS, Data: data("tls.crt")}, []string{"data[tls.key]: Required"}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), Secret.Validate, &test.object), test.want...)
	}
	s := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: data("tls.crt", "tls.key")}
	if warnings := Secret.Warnings(t.Context(), s, nil); len(warnings) != 1 || !strings.HasPrefix(warnings[0], "tls: ") {
		t.Errorf("an invalid pair: %q", warnings)
	}
	s = &corev1.Secret{}
	Secret.Prepare(t.Context(), s, &corev1.Secret{Type: "example.com/x"})
	if s.Type != "example.com/x" {
		t.Errorf("a missing type defaulted to %q", s.Type)
	}
}

func TestStringData(t *testing.T) {
	s := &corev1.Secret{Data: map[string][]byte{"a": []byte("old"), "b": []byte("kept")}, StringData: map[string]string{"a": "new"}}
	SetDefaults_Secret(s)
	if string(s.Data["a"]) != "new" || string(s.Data["b"]) != "kept" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("%+v", s)
	}
}

func TestNamespaces(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
	Namespace.Prepare(t.Context(), n, nil)
	Namespace.Prepare(t.Context(), n, nil)
	if n.Status.Phase != corev1.NamespaceActive || !slices.Equal(n.Spec.Finalizers, []corev1.FinalizerName{corev1.FinalizerKubernetes}) || n.Labels[corev1.LabelMetadataName] != "a" {
		t.Errorf("created: %+v", n)
	}
	update := n.DeepCopy()
	update.Spec.Finalizers = nil
	Namespace.Prepare(t.Context(), update, n)
	if len(update.Spec.Finalizers) != 1 {
		t.Error("an update removed the finalizer")
	}
	n.Spec.Finalizers = []corev1.FinalizerName{"kubernetes", "a.b/c", "bogus", "a b/c"}
	wantErrors(t, "create", checktest.Errors(t.Context(), Namespace.Validate, n), `spec.finalizers: Invalid value: "bogus": name is neither`, `spec.finalizers: Invalid value: "a b/c": prefix part`)
	finalize := Namespace.Updates["finalize"]
	wantErrors(t, "finalize", checktest.UpdateErrors(t.Context(), finalize.Validate, n, n), `spec.finalizers[2]: Invalid value: "bogus"`, `spec.finalizers[3]: Invalid value: "a b/c"`)
	deleted := metav1.NewTime(time.Unix(1, 0))
	for name, test := range map[string]struct {
		deleted *metav1.Time
		phase   corev1.NamespacePhase
		want    []string
	}{
		"living":                       {nil, corev1.NamespaceActive, nil},
		"terminating without deletion": {nil, corev1.NamespaceTerminating, []string{"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"}},
		"dying":                        {&deleted, corev1.NamespaceTerminating, nil},
		"active after deletion":        {&deleted, corev1.NamespaceActive, []string{"status.Phase: Invalid value: \"Active\": may only be 'Terminating'"}},
	} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: test.deleted}, Status: corev1.NamespaceStatus{Phase: test.phase}}
		wantErrors(t, name, checktest.UpdateErrors(t.Context(), Namespace.StatusUpdate.Validate, n, n), test.want...)
	}
}

func TestSetPropagation(t *testing.T) {
	both := []string{"x", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	for name, test := range map[string]struct {
		had     []string
		options metav1.DeleteOptions
		want    []string
	}{
		"no policy keeps finalizers": {both, metav1.DeleteOptions{}, both},
		"background":                 {both, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, []string{"x"}},
		"foreground":                 {nil, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}, []string{metav1.FinalizerDeleteDependents}},
		"orphan":                     {both, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}, []string{"x", metav1.FinalizerOrphanDependents}},
		"orphanDependents true":      {nil, metav1.DeleteOptions{OrphanDependents: new(true)}, []string{metav1.FinalizerOrphanDependents}},
		"orphanDependents false":     {nil, metav1.DeleteOptions{OrphanDependents: new(false)}, []string{metav1.FinalizerDeleteDependents}},
	} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Finalizers: slices.Clone(test.had)}}
		setPropagation(n, &test.options)
		if !slices.Equal(n.Finalizers, test.want) {
			t.Errorf("%s: %q, want %q", name, n.Finalizers, test.want)
		}
	}
}

func TestNodes(t *testing.T) {
	quantity := resource.MustParse("1")
	good := func() *corev1.Node {
		return &corev1.Node{
			Spec:   corev1.NodeSpec{PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "p"},
			Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": quantity}, DeclaredFeatures: []string{"A", "B/c"}},
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   []string
	}{
		"good":                     {func(*corev1.Node) {}, nil},
		"dual stack":               {func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.0.0/24", "fd00::/64"} }, nil},
		"two ranges of one family": {func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.0.0/24", "10.0.1.0/24"} }, []string{`spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR`}},
		"not a range":              {func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"x"} }, []string{`spec.podCIDRs[0]: Invalid value: "x": must be a valid CIDR`}},
		"taint":                    {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, []string{"metadata.taints[0].effect: Required"}},
		"taint twice": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoExecute"}, {Key: "a", Value: "x", Effect: "NoExecute"}}
		}, []string{"metadata.taints[1]: Duplicate value"}},
		"taint without effect": {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a b", Effect: "Maybe"}} },
			[]string{`metadata.taints[0].key: Invalid value: "a b"`, `metadata.taints[0].effect: Unsupported value: "Maybe"`}},
		"capacity":                         {func(n *corev1.Node) { n.Status.Capacity["cpu"] = resource.MustParse("-1") }, []string{"status.capacity.cpu: Invalid value"}},
		"swap":                             {func(n *corev1.Node) { n.Status.NodeInfo.Swap = &corev1.NodeSwapStatus{Capacity: new(int64(0))} }, []string{"metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"}},
		"features":                         {func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"B", "A", "A", "c"} }, []string{"status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted", "status.declaredFeatures[2]: Duplicate value", `status.declaredFeatures[3]: Invalid value: "c": invalid feature name`}},
		"invalid annotation to avoid pods": {func(n *corev1.Node) { n.Annotations = map[string]string{corev1.PreferAvoidPodsAnnotationKey: "x"} }, []string{"metadata.annotations.AvoidPods: Invalid value"}},
		"annotation to avoid pods without owner": {func(n *corev1.Node) {
			n.Annotations = map[string]string{corev1.PreferAvoidPodsAnnotationKey: `{"preferAvoidPods":[{"podSignature":{}}]}`}
		}, []string{"metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required"}},
	} {
		n := good()
		test.change(n)
		wantErrors(t, name, checktest.Errors(t.Context(), Node.Validate, n), test.want...)
	}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   []string
	}{
		"nothing":    {func(*corev1.Node) {}, nil},
		"range":      {func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.9.0/24"} }, []string{"spec.podCIDRs: Forbidden"}},
		"provider":   {func(n *corev1.Node) { n.Spec.ProviderID = "q" }, []string{"spec.providerID: Invalid value: null: field cannot be modified once set"}},
		"no more":    {func(n *corev1.Node) { n.Spec.ProviderID = "" }, []string{"spec.providerID: Invalid value: null: field cannot be cleared once set"}},
		"address":    {func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "a"}, {Address: "a"}} }, []string{"status.addresses[1]: Duplicate value"}},
		"externalID": {func(n *corev1.Node) { n.Spec.DoNotUseExternalID = "x" }, []string{"spec.externalID: Forbidden: may not be updated"}},
	} {
		n := good()
		test.change(n)
		wantErrors(t, "update: "+name, checktest.UpdateErrors(t.Context(), Node.ValidateUpdate, n, good()), test.want...)
	}
}

func TestNodePreparation(t *testing.T) {
	for name, test := range map[string]struct{ spec, want corev1.NodeSpec }{
		"none":          {corev1.NodeSpec{}, corev1.NodeSpec{}},
		"older field":   {corev1.NodeSpec{PodCIDR: "a"}, corev1.NodeSpec{PodCIDR: "a", PodCIDRs: []string{"a"}}},
		"newer field":   {corev1.NodeSpec{PodCIDRs: []string{"a", "b"}}, corev1.NodeSpec{PodCIDR: "a", PodCIDRs: []string{"a", "b"}}},
		"contradiction": {corev1.NodeSpec{PodCIDR: "x", PodCIDRs: []string{"a", "b"}}, corev1.NodeSpec{PodCIDR: "x", PodCIDRs: []string{"x"}}},
	} {
		n := &corev1.Node{Spec: test.spec, Status: corev1.NodeStatus{Config: &corev1.NodeConfigStatus{}}}
		n.Spec.ConfigSource = &corev1.NodeConfigSource{}
		SetObjectDefaults_Node(n)
		Node.Prepare(t.Context(), n, nil)
		if n.Spec.PodCIDR != test.want.PodCIDR || !slices.Equal(n.Spec.PodCIDRs, test.want.PodCIDRs) || n.Spec.ConfigSource != nil || n.Status.Config != nil {
			t.Errorf("%s: %+v", name, n)
		}
	}
	n := &corev1.Node{Spec: corev1.NodeSpec{DoNotUseExternalID: "x", PodCIDRs: []string{"10.0.0.1/24"}}}
	if warnings := Node.Warnings(t.Context(), n, nil); len(warnings) != 2 {
		t.Errorf("warnings %q", warnings)
	}
}

func TestNodeCells(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "x", "kubernetes.io/role": "control-plane"}},
		Spec:       corev1.NodeSpec{Unschedulable: true},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
	}
	if status, roles := nodeStatus(n), nodeRoles(n); status != "NotReady,SchedulingDisabled" || roles != "control-plane,worker" {
		t.Errorf("%v, %v", status, roles)
	}
	n.Status.Conditions[0].Status, n.Spec.Unschedulable, n.Labels = corev1.ConditionTrue, false, nil
	if status, roles := nodeStatus(n), nodeRoles(n); status != "Ready" || roles != "<none>" {
		t.Errorf("%v, %v", status, roles)
	}
	n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.Architecture = "6.1", "amd64"
	if got := kernelVersion(n); got != "6.1 (amd64)" {
		t.Errorf("%v", got)
	}
}

func throughGroup(t *testing.T, group string) context.Context {
	return request.WithRequestInfo(t.Context(), &request.RequestInfo{APIGroup: group, APIVersion: "v1"})
}

func TestEventsByGroup(t *testing.T) {
	newer := func(change func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
			EventTime: metav1.NewMicroTime(time.Unix(1, 0)), ReportingController: "a.b/c", ReportingInstance: "i", Action: "A", Reason: "R", Type: "Normal",
		}
		change(e)
		return e
	}
	for name, test := range map[string]struct {
		change       func(*corev1.Event)
		core, strict []string
	}{
		"good":         {func(*corev1.Event) {}, nil, nil},
		"elsewhere":    {func(e *corev1.Event) { e.InvolvedObject.Namespace = ""; e.Namespace = "x" }, []string{"involvedObject.namespace: Invalid value"}, []string{"involvedObject.namespace: Invalid value"}},
		"no reporter":  {func(e *corev1.Event) { e.ReportingController = "" }, []string{"reportingComponent: Required", "reportingComponent: Invalid", "reportingComponent: Invalid"}, []string{"reportingController: Required", "reportingController: Invalid", "reportingController: Invalid"}},
		"long action":  {func(e *corev1.Event) { e.Action = strings.Repeat("x", 129) }, []string{`action: Invalid value: "": can have at most 128 characters`}, []string{"action: Invalid"}},
		"long note":    {func(e *corev1.Event) { e.Message = strings.Repeat("x", 1025) }, []string{"message: Invalid"}, []string{"message: Invalid"}},
		"unknown type": {func(e *corev1.Event) { e.Type = "Odd" }, nil, []string{`type: Invalid value: "": has invalid value: Odd`}},
		"older form":   {func(e *corev1.Event) { e.EventTime = metav1.MicroTime{}; e.Count = 1; e.Source.Host = "h" }, nil, []string{"eventTime: Required", "count: Invalid", "source: Invalid"}},
		"series":       {func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 1} }, nil, []string{"series.count: Invalid", "series.lastObservedTime: Required"}},
	} {
		wantErrors(t, name+" through core", checktest.Errors(throughGroup(t, ""), Event.Validate, newer(test.change)), test.core...)
		wantErrors(t, name+" through events.k8s.io", checktest.Errors(throughGroup(t, "events.k8s.io"), Event.Validate, newer(test.change)), test.strict...)
	}
	old := newer(func(*corev1.Event) {})
	changed := newer(func(e *corev1.Event) {
		e.Reason, e.Action = "other", "other"
		e.EventTime = metav1.NewMicroTime(e.EventTime.Add(time.Nanosecond))
		e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: e.EventTime}
	})
	wantErrors(t, "update through core", checktest.UpdateErrors(throughGroup(t, ""), Event.ValidateUpdate, changed, old))
	wantErrors(t, "update through events.k8s.io", checktest.UpdateErrors(throughGroup(t, "events.k8s.io"), Event.ValidateUpdate, changed, old), "reason: Invalid", "action: Invalid")
	if Event.Metadata.Loose(throughGroup(t, "events.k8s.io")) || !Event.Metadata.Loose(throughGroup(t, "")) {
		t.Error("only events of the older form may have any name")
	}
}

func TestEndpoints(t *testing.T) {
	subset := func(change func(*corev1.EndpointSubset)) *corev1.Endpoints {
		s := corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}, Ports: []corev1.EndpointPort{{Port: 80, Protocol: "TCP"}}}
		change(&s)
		return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{s}}
	}
	for name, test := range map[string]struct {
		change func(*corev1.EndpointSubset)
		want   []string
	}{
		"good":     {func(*corev1.EndpointSubset) {}, nil},
		"empty":    {func(s *corev1.EndpointSubset) { s.Addresses = nil }, []string{"subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"}},
		"loopback": {func(s *corev1.EndpointSubset) { s.Addresses[0].IP = "127.0.0.1" }, []string{`subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range`}},
		"metadata": {func(s *corev1.EndpointSubset) { s.Addresses[0].IP = "169.254.169.254" }, []string{`subsets[0].addresses[0].ip: Invalid value: "169.254.169.254": may not be in the link-local range`}},
		"names": {func(s *corev1.EndpointSubset) {
			s.Ports = append(s.Ports, corev1.EndpointPort{Port: 81, Protocol: "TCP", Name: "a"})
		}, []string{"subsets[0].ports[0].name: Required"}},
		"port":       {func(s *corev1.EndpointSubset) { s.Ports[0].Port = 0 }, []string{"subsets[0].ports[0].port: Invalid value: 0"}},
		"protocol":   {func(s *corev1.EndpointSubset) { s.Ports[0].Protocol = "ICMP" }, []string{`subsets[0].ports[0].protocol: Unsupported value: "ICMP"`}},
		"a hostname": {func(s *corev1.EndpointSubset) { s.Addresses[0].Hostname = "A" }, []string{"subsets[0].addresses[0].hostname: Invalid"}},
	} {
		wantErrors(t, name, checktest.Errors(t.Context(), Endpoints.Validate, subset(test.change)), test.want...)
	}
	stored := subset(func(s *corev1.EndpointSubset) { s.Addresses[0].IP = "127.0.0.1" })
	wantErrors(t, "what is stored may stay", checktest.UpdateErrors(t.Context(), Endpoints.ValidateUpdate, stored.DeepCopy(), stored))
	if got := formatSubsets(subset(func(s *corev1.EndpointSubset) {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: "fd00::1"}, corev1.EndpointAddress{IP: "10.0.0.3"}, corev1.EndpointAddress{IP: "10.0.0.4"})
	}).Subsets); got != "10.0.0.1:80,[fd00::1]:80,10.0.0.3:80 + 1 more..." {
		t.Errorf("cell %q", got)
	}
	odd := subset(func(s *corev1.EndpointSubset) { s.Addresses[0].IP = "fd00:0::1" })
	if warnings := Endpoints.Warnings(t.Context(), odd, nil); len(warnings) != 1 {
		t.Errorf("warnings %q", warnings)
	}
	odd.Labels = map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
	if warnings := Endpoints.Warnings(t.Context(), odd, nil); len(warnings) != 0 {
		t.Errorf("the controller is warned: %q", warnings)
	}
}

func TestServiceAccountReferences(t *testing.T) {
	account := serviceAccount(nil)
	s := &corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: "a", Namespace: "other", UID: "u", Kind: "Secret"}}}
	account.Prepare(t.Context(), s, nil)
	if s.Secrets[0] != (corev1.ObjectReference{Name: "a"}) {
		t.Errorf("%+v", s.Secrets)
	}
	s.Annotations = map[string]string{enforceMountableSecrets: "true"}
	if len(account.Warnings(t.Context(), s, nil)) != 1 || len(account.Warnings(t.Context(), s, s)) != 0 {
		t.Error("want a warning about the deprecated annotation only when it is new")
	}
}
